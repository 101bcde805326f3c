"""An approval cannot be forged, replayed, moved to another gate, or survive a change of what it allows."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from acode import seal
from acode.engine.create import run_plan
from acode.engine.resume import resume
from acode.engine.session_commands import answer_gate
from acode.engine.world import Options
from acode.errors import AcodeError
from acode.events import Envelope, decode, encode
from acode.events import types as ev
from acode.events.definition import Approve, Run
from acode.plan import approval_digest
from tests.tampering import SPAN
from tests.victims import AT_GATE, Victim
from tests.worlds import plan_file

TWO_GATES = """
version: 1
title: Two gates
tasks:
  - id: main
    steps:
      - approve: "First?"
      - run: echo first >> done.txt
      - approve: "Second?"
      - run: echo second >> done.txt
"""


def refused(victim: Victim) -> AcodeError:
    with pytest.raises(AcodeError) as stopped:
        resume(victim.world, victim.id, Options())
    assert victim.file("deployed.txt") == "" and victim.file("done.txt") == ""
    return stopped.value


def grant_for(victim: Victim, step: str) -> ev.ApprovalGranted:
    session = victim.load().session
    gate = next(one for one in session.steps() if one.id == step)
    assert isinstance(gate.action, Approve)
    return ev.ApprovalGranted(step=step, question=gate.action.question, action_digest=approval_digest(session, gate))


def plant(victim: Victim, event: ev.Known, mac: bytes) -> None:
    """One more row at the end, as good as it can be made without the key."""
    last = victim.attack.last()
    before = decode(victim.attack.body(last).encode(), victim.id, last)
    envelope = Envelope(
        v=before.v,
        session_id=victim.id,
        seq=last + 1,
        at=victim.world.clock(),
        actor="user",
        key_id=before.key_id,
        event=event,
    )
    body = encode(envelope).decode()
    victim.attack.sql("INSERT INTO events VALUES (?, ?, ?, ?, ?)", SPAN + last + 1, victim.id, last + 1, body, mac)


@pytest.mark.req("THREAT-011c-02", "NFR-011c-012")
@pytest.mark.parametrize("signed_with", ["nothing", "another key"])
def test_a_forged_grant_is_detected(signed_with: str, tmp_path: Path) -> None:
    """With the right digest and in the right place, but without the key that signs."""
    victim = Victim(tmp_path)
    last = victim.attack.sql("SELECT mac FROM events ORDER BY id DESC LIMIT 1")[0][0]
    mac = bytes(32) if signed_with == "nothing" else seal.code(b"k" * 32, last, b"")
    plant(victim, grant_for(victim, "deploy.1"), mac)
    assert refused(victim).exit_code == 20


@pytest.mark.req("THREAT-011c-02", "NFR-011c-012", "CODE-011c-12")
def test_a_checkpoint_that_says_granted_is_detected(tmp_path: Path) -> None:
    """The attack of the threat model: the checkpoint is edited while the session waits at the gate."""
    victim = Victim(tmp_path)
    identity, body = victim.attack.sql("SELECT id, body FROM checkpoints ORDER BY id DESC LIMIT 1")[0]
    plain = json.loads(body)
    plain["session"]["records"] = {"approvals": {"deploy.1": {"action_digest": "x", "granted": True, "seq": 3}}}
    victim.attack.sql("UPDATE checkpoints SET body = ? WHERE id = ?", json.dumps(plain), identity)
    error = refused(victim)
    assert error.code == "CKPT-001" and "possible tampering" in error.message


@pytest.mark.req("THREAT-011c-02", "NFR-011c-012")
def test_a_denial_turned_into_a_grant_is_detected(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    answer_gate(victim.world, victim.id, None, granted=False, note="")
    victim.attack.edit(victim.attack.seq_of("approval_denied"), "approval_denied", "approval_granted")
    assert refused(victim).exit_code == 20


@pytest.mark.req("NFR-011c-012")
def test_an_old_grant_cannot_be_replayed(tmp_path: Path) -> None:
    """The row of an earlier grant, with its code, put at the end of the log again."""
    victim = Victim(tmp_path)
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    seq = victim.attack.seq_of("approval_granted")
    body, mac = victim.attack.sql("SELECT body, mac FROM events WHERE seq = ?", seq)[0]
    answer_gate(victim.world, victim.id, None, granted=False, note="changed my mind")
    last = victim.attack.last()
    victim.attack.sql("INSERT INTO events VALUES (?, ?, ?, ?, ?)", SPAN + last + 1, victim.id, last + 1, body, mac)
    assert refused(victim).exit_code == 20


@pytest.mark.req("NFR-011c-012")
def test_a_grant_cannot_be_moved_to_another_gate(tmp_path: Path) -> None:
    victim = Victim(tmp_path, TWO_GATES)
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    victim.attack.edit(victim.attack.seq_of("approval_granted"), "main.1", "main.3")
    assert refused(victim).exit_code == 20


@pytest.mark.req("NFR-011c-012")
def test_a_grant_of_one_session_is_none_in_another(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    other = run_plan(victim.world, plan_file(AT_GATE)).session_id
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    seq = victim.attack.seq_of("approval_granted")
    body, mac = victim.attack.sql("SELECT body, mac FROM events WHERE id = ?", SPAN + seq)[0]
    victim.attack.sql("INSERT INTO events VALUES (?, ?, ?, ?, ?)", 2 * SPAN + seq, other, seq, body, mac)
    with pytest.raises(AcodeError) as stopped:
        resume(victim.world, other, Options())
    assert stopped.value.exit_code == 20


@pytest.mark.req("NFR-011c-012")
def test_one_grant_opens_one_gate(tmp_path: Path) -> None:
    victim = Victim(tmp_path, TWO_GATES)
    answer_gate(victim.world, victim.id, "main.1", granted=True, note="")
    with pytest.raises(AcodeError) as early:
        answer_gate(victim.world, victim.id, "main.3", granted=True, note="")
    assert early.value.exit_code == 2, "a gate that is not reached cannot be answered in advance"
    assert resume(victim.world, victim.id, Options()).exit_code == 10
    assert victim.file("done.txt") == "first\n"


@pytest.mark.req("NFR-011c-012")
@pytest.mark.parametrize("change", ["command", "order", "question", "another step behind it"])
def test_a_grant_does_not_cover_another_action(change: str, tmp_path: Path) -> None:
    """The digest that a grant carries is that of the question and of every step it allows, as they are."""
    victim = Victim(tmp_path)
    session = victim.load().session
    assert session.plan is not None
    gate = next(one for one in session.steps() if one.id == "deploy.1")
    granted = approval_digest(session, gate)
    build, deploy = session.plan.tasks
    ask, act = deploy.steps
    steps = {
        "command": (ask, msgspec.structs.replace(act, action=Run(command="rm -rf build"))),
        "order": (ask, msgspec.structs.replace(act, id="deploy.3"), act),
        "question": (msgspec.structs.replace(ask, action=Approve(question="Really?")), act),
        "another step behind it": (ask, act, msgspec.structs.replace(act, id="deploy.3")),
    }[change]
    session.plan = msgspec.structs.replace(session.plan, tasks=(build, msgspec.structs.replace(deploy, steps=steps)))
    assert approval_digest(session, steps[0]) != granted


@pytest.mark.req("NFR-011c-012")
def test_a_changed_plan_file_changes_nothing_behind_an_approval(tmp_path: Path) -> None:
    """What runs is the plan that was stored, sealed and approved; the file may say what it wants."""
    victim = Victim(tmp_path)
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    (victim.world.workspace / "plan.yml").write_text(AT_GATE.replace("echo deployed", "echo hacked"))
    assert resume(victim.world, victim.id, Options()).exit_code == 0
    assert victim.file("deployed.txt") == "deployed\n"


@pytest.mark.req("NFR-011c-012")
def test_neither_force_nor_yes_answers_a_gate(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    result = resume(victim.world, victim.id, Options(force=True, reason="in a hurry"))
    assert result.exit_code == 10 and victim.file("deployed.txt") == ""
