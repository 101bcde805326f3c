"""The table of all cases: each state-changing command, each kind of step. A new command or kind gets a line here."""

from __future__ import annotations

import contextlib
import os
from functools import partial

import acode
from acode.engine.session_list import rows
from acode.events.definition import Run, Write
from acode.integrations.mcp_server.tool_calls import ToolCall, ToolCalls
from acode.store.wal_preallocation import APPENDS_BEFORE
from tests.crash import (
    grounds,
    grounds_agent,
    grounds_care,
    grounds_foreign,
    grounds_observed,
    grounds_shared,
    grounds_together,
)
from tests.crash.case import ACT, DONE_BEFORE, Case
from tests.crash.grounds import plan
from tests.crash.place import Place
from tests.crash.table_fleet import FLEET


def program(place: Place) -> None:
    """A program with library calls, one of them nested, until it has ended; what is unknown the ledger tells."""

    def note(what: str) -> str:
        fd = os.open(place.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        left = f"k:{what}:\n".encode()
        while left:
            left = left[os.write(fd, left) :]
        with contextlib.suppress(OSError):  # it has happened, also where the disk is sick
            os.fsync(fd)  # an effect that a power cut may take back would be this program's own fault
        with contextlib.suppress(OSError):
            os.close(fd)
        return what

    def steps() -> None:
        with acode.session("k", workspace=place.workspace, force="it was cut off") as session:
            first = session.step("fetch", note, "fetch", idempotent=True)
            session.write("old.txt", f"{first}\n")
            session.step("send", note, "send")
            session.step("outer", lambda: session.step("inner", note, "inner"), idempotent=True)
            session.write("old.txt", "the end\n", name="second")

    with grounds.environment(place):
        for _ in range(8):
            try:
                return steps()
            except acode.OutcomeUnknown as unknown:
                step = unknown.details["step"]
                answer = "applied" if place.effects()[step.rpartition(".")[2]] else "not_applied"
                acode.resolve("k", step, answer, workspace=place.workspace)  # type: ignore[arg-type]
    raise AssertionError("not finished after eight runs")


def tool_calls(place: Place) -> None:
    """The calls of an MCP client, made again by their keys until each is answered; the ledger tells the unknown. What
    is refused for another reason ends it by that name."""
    note = f"echo k:call: >> '{place.ledger}'; sync '{place.ledger}'"
    actions = [Write(path="old.txt", content="by a call\n"), Run(command=note), Write(path="new.txt", content="end\n")]
    with grounds.environment(place):
        for _ in range(8):
            calls = ToolCalls("mcp test", place.workspace)
            made = (calls.call(ToolCall(key=f"key-{n}", action=action)) for n, action in enumerate(actions))
            failed = next((one for one in made if one.error), None)
            if failed is None:
                return
            if "is unknown" not in failed.text:
                assert "(ACODE-" in failed.text and "ACODE-000" not in failed.text, failed
                raise acode.AcodeError(failed.text.splitlines()[0])
            answer = "applied" if place.effects()["call"] else "not_applied"
            acode.resolve("mcp test", "key-1", answer, workspace=place.workspace)  # type: ignore[arg-type]
    raise AssertionError(f"not finished after eight runs: {failed}")


def long_program(place: Place) -> None:
    """So many steps that room is made for the log, and used; nothing but the log is written."""
    with grounds.environment(place), acode.session("long", workspace=place.workspace) as session:
        for number in range(APPENDS_BEFORE // 2 + 3):  # a start and a completion each
            session.step("count", str, number, idempotent=True)


def nightly(place: Place) -> None:
    """A supervisor that is started again until it has reported the end; asked after that, it is the next night."""
    notes = [path for path in (place.workspace / ".agent" / "locks").glob("supervised.*") if path.suffix != ".child"]
    ended = [row for row in rows(place.world()) if row.session is not None and row.session.terminal]
    if notes or not ended:
        said = place.acode("supervise", "../command.yml", *ACT)
        if said.exit_code and "ACODE-000" not in said.stdout:  # refused by name, as a program is told of it
            raise acode.AcodeError(said.stdout)
        assert said.exit_code == 0, said


RUNS = (
    Case(name="run files", ground=grounds.plain, words=plan("files")),
    Case(
        name="run commands",
        ground=grounds.plain,
        words=plan("commands"),
        once=("work.undeclared", "work.probed"),
        lively=True,
    ),
    Case(
        name="run parallel",
        ground=grounds.plain,
        words=plan("parallel"),
        once=("one.undeclared", "two.probed"),
        lively=True,
        sparse=True,
    ),
    Case(name="run patterns", ground=grounds.plain, words=plan("patterns"), ends_with=(10,), lively=True),
    Case(name="run databases", ground=grounds.with_databases, words=plan("databases")),
    Case(name="run commits", ground=grounds.repository, words=plan("commits"), lively=True, followed=True),
    Case(name="run to gate", ground=grounds.plain, words=plan("gate"), ends_with=(10,)),
    Case(name="program", ground=grounds.plain, program=program, once=("send", "inner")),
    Case(
        name="observed agent",
        ground=grounds_observed.doors,
        program=grounds_observed.agent,
        once=("pay",),
        only_for_real=True,  # the agent of a copied log would be seen to live
        sparse=True,
    ),
    Case(name="mcp calls", ground=grounds.plain, program=tool_calls, once=("call",), lively=True, sparse=True),
    Case(
        name="observed agent unrecorded",
        ground=grounds_observed.unrecorded,
        program=grounds_observed.agent,
        once=("pay",),
        only_for_real=True,  # the agent of a copied log would be seen to live
        sparse=True,
    ),
    Case(name="program at length", ground=grounds.plain, program=long_program),
)
TOGETHER = (
    *(
        Case(
            name=f"32 {name}",
            ground=grounds.plain,
            program=program,
            once=grounds_together.EFFECTS,
            lively=True,  # in which order they write differs from run to run
            sparse=True,
        )
        for name, program in (("threads", grounds_together.in_threads), ("tasks", grounds_together.in_tasks))
    ),
    Case(
        name="stopped by a signal",
        ground=grounds_together.to_be_stopped,
        words=("run", "../stopped.yml", "--on-signal", "stop", *ACT),
        ends_with=(143,),
        lively=True,
        sparse=True,
    ),
    Case(name="answer on the page", ground=grounds.at_gate, program=grounds_together.answer_on_the_page, sparse=True),
    Case(
        name="settle observed",
        ground=grounds_observed.cut_off,
        words=("resume", "{id}", "--no-launch", "--yes", *ACT),
        repeated=(0,),
        once=("pay",),
        ends_sessions=True,  # its agent would be started, which is nowhere
        sparse=True,
    ),
)
RESUMES = (
    Case(name="resume", ground=grounds.killed_while_writing, words=("resume", "{id}", "--force", *ACT)),
    Case(
        name="resume rolled back",
        ground=grounds.pattern_rolled_back,
        words=("resume", "{id}", "--force", *ACT),
        ends_with=(10,),
        lively=True,
    ),
    Case(
        name="resume with plan",
        ground=grounds.broken,
        words=("resume", "{id}", "--plan", "../corrected.yml", "--force", "--reason", "corrected", *ACT),
        repeated=(0, 15),
        once=("work.first",),
        lively=True,
    ),
    Case(name="resume behind gate", ground=grounds.at_gate, words=("resume", "{id}", *ACT), ends_with=(10,)),
    Case(name="supervise", ground=grounds_care.approved, words=("supervise", "{id}", *ACT), lively=True, followed=True),
    # Killed alone: its child lives on, and so no copy of the place is all that is left.
    Case(
        name="supervise nightly",
        ground=grounds.plain,
        program=nightly,
        once=("work.undeclared",),
        lively=True,
        sparse=True,
        only_for_real=True,
    ),
)
LOST = tuple(
    Case(
        name=name,
        ground=ground,
        words=("resume", "{id}", "--force", *ACT),
        ends_with=ends_with,
        once=("work.lost",),
        lively=True,
    )
    for name, ground, ends_with in (
        ("resume unknown", grounds.unknown, (19,)),
        ("resume hung", grounds.hung, (19,)),
        ("resume probed", grounds.lost_with_probe, (0,)),
    )
)
PARALLEL = (
    Case(
        name="resume parallel",
        ground=grounds.three_lost,
        words=("resume", "{id}", "--force", *ACT),
        once=("two.probed",),
        lively=True,
        sparse=True,
    ),
)
ANSWERS = (
    Case(name="approve", ground=grounds.at_gate, words=("session", "approve", "{id}", *ACT), repeated=DONE_BEFORE),
    Case(name="deny", ground=grounds.at_gate, words=("session", "deny", "{id}", *ACT), repeated=DONE_BEFORE),
    *(
        Case(
            name=f"resolve {answer}",
            ground=grounds.unknown,
            words=("session", "resolve", "{id}", "work.lost", f"--{answer}", *ACT),
            repeated=DONE_BEFORE,
            once=("work.lost",) if answer == "applied" else (),
            lively=True,
        )
        for answer in ("applied", "not-applied", "retry")
    ),
    Case(
        name="rollback",
        ground=grounds.at_gate,
        words=("session", "rollback", "{id}", "--yes", *ACT),
        repeated=(0,),
        ends_sessions=True,  # carried on, it would end the same had nothing been put back
    ),
    Case(
        name="rollback and on",
        ground=grounds.at_gate,
        words=("session", "rollback", "{id}", "--yes", *ACT),
        repeated=(0,),
    ),
    Case(
        name="rollback of patterns",
        ground=grounds.pattern_done,
        words=("session", "rollback", "{id}", "--to", "first.1", "--yes", *ACT),
        repeated=(0, 2),
        lively=True,
    ),
    Case(
        name="rollback with undo",
        ground=grounds.at_gate_with_undo,
        words=("session", "rollback", "{id}", "--yes", *ACT),
        repeated=(0,),
        once=("first.2~undo",),
        lively=True,
        followed=True,
    ),
    Case(
        name="rollback of a program",
        ground=grounds_care.program_at_gate,
        words=("session", "rollback", "{id}", "--yes", *ACT),
        repeated=(0,),
        once=(f"{grounds_care.EFFECT}~undo",),
        lively=True,
        ends_sessions=True,  # the program is this one, which acode cannot start
    ),
    Case(
        name="resolve undo",
        ground=grounds_care.undo_lost,
        words=("session", "resolve", "{id}", "first.2", "--applied", *ACT),
        repeated=(0,),
        once=("first.2~undo",),
        lively=True,
        afterwards=grounds_care.roll_back_again,
    ),
    Case(name="pause", ground=grounds.killed_while_writing, words=("session", "pause", "{id}", *ACT), repeated=(0, 15)),
    Case(name="checkpoint", ground=grounds.at_gate, words=("session", "checkpoint", "{id}", *ACT), repeated=(0, 1, 15)),
    Case(
        name="unlock",
        ground=grounds.at_gate,
        words=("session", "unlock", "{id}", "--force", *ACT),
        repeated=(0, 15),
    ),
    Case(
        name="unlock while held",
        ground=grounds.to_be_held,
        words=("session", "unlock", "{id}", "--force", *ACT),
        repeated=(0,),
        once=("work.slow",),
        lively=True,
        leaves=grounds.breakings,
        beside=grounds.hold,
        afterwards=grounds.let_go,
        only_for_real=True,
    ),
    Case(
        name="cancel",
        ground=grounds.at_gate,
        words=("session", "cancel", "{id}", *ACT),
        repeated=(0, 15),
    ),
    Case(
        name="abandon",
        ground=grounds.at_gate,
        words=("session", "abandon", "{id}", *ACT),
        repeated=(0, 15),
    ),
)
CARE = (
    Case(
        name="repair",
        ground=grounds.damaged,
        words=("session", "repair", "{id}", "--yes", "--reason", "test", *ACT),
        repeated=(0,),
    ),
    Case(
        name="repair rolled back",
        ground=grounds_care.put_back_to_older,
        words=("session", "repair", "{id}", "--accept-rollback", "--yes", "--reason", "test", *ACT),
        repeated=(0,),
    ),
    Case(
        name="export",
        ground=grounds.at_gate,
        words=("session", "export", "{id}", "-o", "../bundle", *ACT),
        repeated=(0,),
        shows=grounds_care.is_exported,
    ),
    Case(
        name="report",
        ground=grounds.at_gate,
        words=("session", "report", "{id}", "-o", "../report.html", *ACT),
        repeated=(0,),
        shows=grounds_care.is_reported,
        sparse=True,
    ),
    Case(
        name="gc",
        ground=grounds.ended,
        words=("session", "gc", "--older-than", "0", "--yes", *ACT),
        repeated=(0,),
        ends_sessions=True,  # one that ended meanwhile would be collected too
        shows=grounds.ended_is_gone,
    ),
    Case(
        name="key rotate",
        ground=grounds.at_gate,
        words=("key", "rotate", *ACT),
        repeated=(0,),
        shows=grounds.has_new_key,
    ),
    Case(
        name="key import",
        ground=grounds_care.with_keys_of_another,
        words=("key", "import", "../keys", *ACT),
        repeated=(0,),
        shows=grounds_care.number_of_keys,
    ),
    Case(
        name="init",
        ground=grounds.plain,
        words=("init", "../first.yml", *ACT),  # beside the workspace, in which every change has its record
        repeated=(0, 2),  # once the plan is there it is not overwritten
        shows=grounds_care.is_begun,
    ),
    Case(
        name="config trust",
        ground=grounds.untrusted,
        words=("config", "trust", *ACT),
        repeated=(0,),
        shows=grounds.trusted,
    ),
    Case(
        name="completion install",
        ground=grounds_care.with_startup_file,
        words=("completion", "bash", "--install", *ACT),
        repeated=(0,),
        shows=grounds_care.completion_is_installed,
    ),
    Case(
        name="hook install",
        ground=grounds_care.with_agent_settings,
        words=("hook", "install", "codex", *ACT),
        repeated=(0,),
        shows=grounds_care.agent_settings,
    ),
    Case(
        name="hook uninstall",
        ground=grounds_care.with_hooks,
        words=("hook", "uninstall", "codex", *ACT),
        repeated=(0,),
        shows=grounds_care.agent_settings,
    ),
)
SHARED = (
    Case(
        name="run server",
        ground=grounds_shared.with_target,
        words=plan("server"),
        shows=grounds_shared.rows_there,
        outside="database",
        only_for_real=True,
    ),
    Case(
        name="run shared",
        ground=grounds_shared.shared,
        words=plan("gate"),
        ends_with=(10,),
        leaves=grounds_shared.level_in_the_end,
        outside="database",
        only_for_real=True,
    ),
    Case(
        name="sync now",
        ground=grounds_shared.pending,
        words=("sync", "now", *ACT),
        repeated=(0,),
        ends_sessions=True,
        shows=grounds_shared.level,
        outside="database",
        only_for_real=True,
    ),
    Case(
        name="pull",
        ground=grounds_shared.elsewhere,
        words=("pull", "{there}", "--yes", *ACT),
        repeated=(0,),
        ends_sessions=True,
        shows=grounds_shared.level,
        outside="database",  # which it only reads
    ),
    Case(
        name="take over",
        ground=grounds_shared.elsewhere,
        words=("resume", "{there}", "--remote", "--yes", *ACT),
        ends_with=(10,),
        repeated=(10,),
        leaves=grounds_shared.level_in_the_end,
        outside="database",
        only_for_real=True,
    ),
    Case(
        name="take over by force",
        ground=grounds_shared.kept_elsewhere,
        words=("resume", "{there}", "--remote", "--force", "--reason", "it is gone", "--yes", *ACT),
        ends_with=(10,),
        repeated=(10,),
        leaves=grounds_shared.decided,
        outside="database",
        only_for_real=True,
    ),
    Case(
        name="choose the history there",
        ground=grounds_shared.parted,
        words=("pull", "{id}", "--force", "--reason", "theirs is right", "--yes", *ACT),
        repeated=(0,),
        ends_sessions=True,
        leaves=grounds_shared.decided_when_taken,
        outside="database",
        only_for_real=True,
    ),
    Case(
        name="choose the history here",
        ground=grounds_shared.parted,
        words=("sync", "now", "{id}", "--force", "--reason", "mine is right", *ACT),
        repeated=(0,),
        ends_sessions=True,
        leaves=grounds_shared.decided,
        outside="database",
        only_for_real=True,
    ),
)
AGENT = (
    Case(
        name="agent plans",
        ground=grounds_agent.with_model,
        words=grounds_agent.TASK,
        ends_with=(10,),
        once=(grounds_agent.COMMAND,),
        leaves=grounds_agent.asked_undecided,
        refused=grounds_agent.was_refused,
        outside="model",
        lively=True,
    ),
    Case(
        name="agent works",
        ground=grounds_agent.planned,
        words=("resume", "{id}", "--force", *ACT),
        once=(grounds_agent.COMMAND,),
        leaves=grounds_agent.asked_undecided,
        refused=grounds_agent.was_refused,
        outside="model",
        lively=True,
    ),
)
FOREIGN = tuple(
    Case(
        name=f"carry on {source}",
        ground=partial(grounds_foreign.begun_elsewhere, source=source),
        words=("resume", run, "--yes", "--force", "--reason", "it was cut off", *ACT),
        repeated=(0, 15),
        once=grounds_foreign.pieces(source),
        lively=True,
        sparse=True,
        leaves=partial(grounds_foreign.told, source=source),
    )
    for source, run in grounds_foreign.RUNS.items()
)
CASES = {
    case.name: case
    for case in (*RUNS, *TOGETHER, *RESUMES, *LOST, *PARALLEL, *ANSWERS, *CARE, *SHARED, *FLEET, *AGENT, *FOREIGN)
}
# Those of which a copy of the place is all that a kill leaves.
COPIED = tuple(name for name, case in CASES.items() if not case.only_for_real)
# Of those, the ones that start no process: all that changes the disk is seen.
STILL = tuple(name for name in COPIED if not CASES[name].lively)
# Those that need nothing but this machine.
ALONE = tuple(name for name, case in CASES.items() if not case.outside)
# For power cuts: what its keeper and its command do to the disk is recorded with it.
POWERED = Case(name="run kept", ground=grounds.with_ledger, words=plan("kept"), once=("work.kept",), lively=True)
UNSYNCED = Case(name="run built", ground=grounds.plain, words=plan("built"), lively=True)
# A thousand stops beside many threads: the gate kills them for real, snapshots are for the release sweep.
MANY_AT_ONCE = ("32 threads", "32 tasks")
# Of a fleet's, those that the gate kills: a session that comes, is worked on and handed back, and gets an answer.
FLEET_QUICK = ("submit", "worker drained")
QUICK = ("run files", "run databases", "program", "resume", "approve", "rollback", "repair", "gc")
