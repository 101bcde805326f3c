"""Agents for tests: a model that says what the test wrote, tools that leave a trace outside, processes that are killed.

The sweep forks its victims from one process that has loaded everything: they are real processes and die by SIGKILL, and
two or three of them per boundary cost as little as their work.
"""

from __future__ import annotations

AGENT = """
import asyncio, signal
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from acode.integrations.pydantic_ai import AcodeDurability

KEY = os.environ.get("KEY", "k")

def die(where):
    if os.environ.get("DIE") == where:
        os.kill(os.getpid(), signal.SIGKILL)

def effect(*words):
    die("before " + " ".join(words))
    note(*words)
    die("after " + " ".join(words))

def returned(messages):
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]

def respond(messages, info):
    number = sum(message.kind == "response" for message in messages) + 1
    effect("model", str(number))
    match number:
        case 1:
            return ModelResponse([ToolCallPart("look", {"at": "a"}), ToolCallPart("send", {"to": "b"})])
        case 2:
            return ModelResponse([ToolCallPart("send", {"to": "c"})])
    return ModelResponse([TextPart(f"{messages[0].parts[0].content}: {returned(messages)}")])

agent = Agent(FunctionModel(respond), name="support", capabilities=[AcodeDurability(idempotent={"look"})])

@agent.tool_plain
def look(at: str) -> str:
    effect("look", at)
    return at.upper()

@agent.tool_plain
async def send(to: str) -> dict[str, str]:
    effect("send", to)
    return {"sent": to}

def in_this_thread(prompt, **wishes):
    with acode.session(KEY, **wishes) as s:
        return s, agent.run_sync(prompt)

def in_a_loop(prompt, **wishes):
    async def program():
        async with acode.session(KEY, **wishes) as s:
            return s, await agent.run(prompt)
    return asyncio.run(program())
"""

ONE_RUN = (
    AGENT
    + """
s, result = in_this_thread(os.environ.get("PROMPT", "go"), on_change=os.environ.get("ON_CHANGE", "raise"))
tell(output=result.output, found=s.found)
"""
)

DURABLE = (
    AGENT
    + """
@acode.durable(key="ticket-{number}")
def answer(number):
    return agent.run_sync("go").output

if __name__ == "__main__":
    tell(output=answer(7))
"""
)

SWEEP = (
    AGENT
    + """
import traceback
from acode.engine.workspace_store import opened
from acode.events import types as ev
from acode.library.open_session import find_session
from acode.library.world import world_of
from acode.store.journal import Journal

program = {"sync": in_this_thread, "async": in_a_loop}[sys.argv[1]]
append, appended = Journal.append, []

def appending(self, *events, **more):
    appended.append(events)
    where = f"commit {len(appended)}"
    die("before " + where)
    done = append(self, *events, **more)
    self.settle(done[-1].seq, durable=False)
    die("after " + where)
    return done

Journal.append = appending

def in_child(key, work, die=""):
    # What the child returns; None where it was killed.
    back, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            global KEY, LEDGER
            KEY, LEDGER = key, LEDGER.with_name(key)
            os.environ["DIE"] = die
            os.write(there, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    os.close(there)
    with open(back, "rb") as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0, f"{key}: the child failed"
    return json.loads(said)

def run():
    try:
        s, result = program("go")
    except acode.OutcomeUnknown as error:
        return {"unknown": error.details["step"]}
    return {"output": result.output, "commits": len(appended)}

def ledger(key):
    path = LEDGER.with_name(key)
    return path.read_text().splitlines() if path.exists() else []

def recorded():
    # The steps on record as they are found after the kill.
    world = world_of(".")
    known = find_session(world, KEY)
    if known is None:
        return []
    with opened(world, look_only=True) as store:
        events = [envelope.event for envelope, _, _ in store.events(known[0])]
    return [event.step for event in events if isinstance(event, ev.StepCompleted)]

def decide(step):
    # The person who looks into the ledger knows what acode cannot.
    to = {"support-run1.call-1-2-send": "b", "support-run1.call-2-1-send": "c"}[step]
    if f"send {to}" in ledger(KEY):
        acode.resolve(KEY, step, "applied", result={"sent": to}, note="it is in the ledger")
    else:
        acode.resolve(KEY, step, "not_applied")

def carry_on():
    known, decisions = recorded(), 0
    while "unknown" in (ended := run()):
        decide(ended["unknown"])
        decisions += 1
    return {"recorded": known, "decisions": decisions, "output": ended["output"]}

KEY = "warm"
in_a_loop("go")  # whatever is loaded and built on first use is there before the first fork
LEDGER.unlink()
appended.clear()
undisturbed = in_child("whole", run)
tell(case="whole", output=undisturbed["output"], ledger=ledger("whole"))
for number in range(1, undisturbed["commits"] + 1):
    for when in ("before", "after"):
        key = f"{when}-{number}"
        assert in_child(key, run, die=f"{when} commit {number}") is None, key
        before = ledger(key)
        ended = in_child(key, carry_on)
        tell(case=key, before=before, after=ledger(key)[len(before):], **ended)
"""
)
