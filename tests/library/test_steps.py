"""Steps of a program run once: what is on record is given, what is not is done, and what changed is noticed."""

from __future__ import annotations

import asyncio
import contextvars
import os
import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import acode
from acode.engine.workspace_store import opened
from acode.errors import Escalated, InputRequired, SessionLocked, StepFailed, TerminalState, UnsafeWorkspace, Usage
from acode.events import types as ev
from tests.library.counted import Counted, Stop, interrupted
from tests.library.programs import Place
from tests.worlds import world


def test_a_step_runs_once_and_a_later_run_is_given_its_result(place: Place) -> None:
    work = Counted({"rows": [1, 2]})
    interrupted("k", lambda s: s.step("extract", work, "monday"))
    with acode.session("k") as s:
        assert s.resumed and s.key == "k"
        assert s.step("extract", work, "monday") == {"rows": [1, 2]}
    assert work.calls == [("monday",)]


def test_a_completed_session_gives_its_results_and_runs_nothing_new(place: Place) -> None:
    work = Counted(7)
    for _ in range(3):
        with acode.session("k") as s:
            assert s.step("a", work) == 7
    assert len(work.calls) == 1
    with pytest.raises(TerminalState), acode.session("k") as s:
        s.step("a", work)
        s.step("new", work)


def test_a_completed_key_begins_anew_where_that_is_wanted(place: Place) -> None:
    work = Counted(7)
    ids = set()
    for _ in range(2):
        with acode.session("k", on_completed="new") as s:
            s.step("a", work)
            ids.add(s.id)
    assert len(work.calls) == 2 and len(ids) == 2


def test_a_name_asked_for_again_gets_a_counter_and_loops_go_on_where_they_stopped(place: Place) -> None:
    work = Counted()
    interrupted("k", *[lambda s, n=n: s.step("fetch", work, n) for n in range(3)])
    with acode.session("k") as s:
        for n in range(5):
            s.step("fetch", work, n)
        begun = s.begin("fetch", 5)
        assert begun.id == "fetch#6"
        s.complete(begun)
    assert [args[0] for args in work.calls] == [0, 1, 2, 3, 4]


def test_a_step_inserted_in_the_middle_is_done_and_nothing_else_is(place: Place) -> None:
    old, new = Counted(1), Counted(2)
    interrupted("k", lambda s: s.step("a", old), lambda s: s.step("b", old), lambda s: s.step("c", old))
    for _ in range(2):
        interrupted(
            "k",
            lambda s: s.step("a", old),
            lambda s: s.step("inserted", new, "something else"),
            lambda s: s.step("b", old),
            lambda s: s.step("c", old),
        )
    assert (len(old.calls), len(new.calls)) == (3, 1)


def in_branch(name: str, *steps: Callable[[acode.Session], object]) -> Callable[[acode.Session], object]:
    def enter(s: acode.Session) -> None:
        with s.branch(name):
            for step in steps:
                step(s)

    return enter


def asks(name: str, work: Counted, **declared: Any) -> Callable[[acode.Session], object]:
    return lambda s: s.step(name, work, **declared)


@pytest.mark.parametrize(
    "way", ["renamed", "the first one renamed", "into a branch", "out of a branch", "branch renamed"]
)
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_step_that_was_renamed_or_moved_is_not_done_again_before_a_person_decides(
    place: Place, way: str, goes_on: bool
) -> None:
    charge, other = Counted("paid"), Counted()
    prepare, last = asks("prepare", other), asks("last", other)
    paid = asks("charge", charge)
    then, now, recorded, asked = {
        "renamed": ([prepare, paid], [prepare, asks("charge-card", charge)], "charge", "charge-card"),
        "the first one renamed": ([paid], [asks("charge-card", charge)], "charge", "charge-card"),
        "into a branch": ([prepare, paid], [prepare, in_branch("b", paid)], "charge", "b.charge"),
        "out of a branch": ([prepare, in_branch("b", paid)], [prepare, paid], "b.charge", "charge"),
        "branch renamed": ([prepare, in_branch("b", paid)], [prepare, in_branch("c", paid)], "b.charge", "c.charge"),
    }[way]
    interrupted("k", *then, *([last] if goes_on else []))
    for on_change in ("raise", "keep"):
        with pytest.raises(acode.NonDeterminism) as caught, acode.session("k", on_change=on_change) as s:
            for step in (*now, last):
                step(s)
        assert (caught.value.details["recorded"], caught.value.details["asked"]) == (recorded, asked)
        assert "on_change='insert'" in str(caught.value.hint) and recorded in str(caught.value.hint)
    assert len(charge.calls) == 1


def test_a_step_whose_surroundings_were_renamed_is_not_done_again(place: Place) -> None:
    charge = Counted("paid")

    def outer(s: acode.Session) -> None:
        s.step("charge", charge)
        raise Stop

    with pytest.raises(Stop), acode.session("k") as s:
        s.step("outer", outer, s, idempotent=True)
    with pytest.raises(acode.NonDeterminism, match=r"outer\.charge"), acode.session("k") as s:
        s.step("renamed", outer, s, idempotent=True)
    assert len(charge.calls) == 1


def test_that_a_step_is_new_is_said_and_on_record(place: Place) -> None:
    old, new = Counted(1), Counted(2)
    interrupted("k", asks("a", old), asks("b", old))
    with acode.session("k", on_change="insert") as s:
        s.step("a", old)
        s.step("new", new)
        s.step("b", old)
        s.step("after", new)
    assert (len(old.calls), len(new.calls)) == (2, 2)
    noted = [event for event in place.json("session", "history", s.id) if event["type"] == "noted"]
    assert len(noted) == 1 and "step_inserted" in str(noted) and "new" in str(noted)


def test_what_threads_and_tasks_have_not_done_yet_is_no_change_of_the_program(place: Place) -> None:
    work = Counted()

    def page(s: acode.Session, n: int) -> None:
        with s.branch(f"page-{n}"):
            s.step("fetch", work, n)
            s.step("store", work, n)

    def program(s: acode.Session, *pages: int) -> None:
        s.step("first", work)
        with ThreadPoolExecutor(1) as pool:
            for n in pages:
                pool.submit(page, s, n).result()
        s.step("last", work)

    interrupted("k", lambda s: program(s, 1))
    with acode.session("k") as s:
        program(s, 0, 1, 2)

    async def several(s: acode.Session, *numbers: int) -> None:
        async def fetch(n: int) -> int:
            return n

        await asyncio.gather(*(s.step(f"fetch-{n}", fetch, n) for n in numbers))
        s.step("last", work)

    async def session(*numbers: int, stop: bool) -> None:
        async with acode.session("tasks") as s:
            await several(s, *numbers)
            if stop:
                raise Stop

    with pytest.raises(Stop):
        asyncio.run(session(1, 2, stop=True))
    asyncio.run(session(0, 1, 2, 3, stop=False))
    assert len(work.calls) == 2 + 2 * 3 + 1


def test_a_step_that_was_begun_before_is_no_new_one(place: Place) -> None:
    fails = Counted(ValueError("no"), "now")
    other = Counted()
    interrupted("k", asks("a", other))

    def caught(s: acode.Session) -> None:
        with pytest.raises(ValueError, match="no"):
            s.step("new", fails, "it")

    interrupted("k", caught, asks("a", other))  # the failure was caught, and nothing was begun after it
    with acode.session("k") as s:
        assert s.step("new", fails, "it") == "now"
        s.step("a", other)


@pytest.mark.parametrize(
    ("now", "what", "recorded", "asked"),
    [
        ([("a", 1), ("b", 3)], "arguments", "(2)", "(3)"),
        ([("b", 2), ("a", 1)], "order", "a", "b"),
        ([("renamed", 1), ("b", 2)], "step", "a", "renamed"),
        ([("a", 1), ("renamed", 2)], "step", "b", "renamed"),
    ],
)
def test_changed_arguments_names_and_order_are_reported_with_both_sides(
    place: Place, now: list[tuple[str, int]], what: str, recorded: str, asked: str
) -> None:
    work = Counted()
    interrupted("k", lambda s: s.step("a", work, 1), lambda s: s.step("b", work, 2))
    with pytest.raises(acode.NonDeterminism) as caught, acode.session("k") as s:
        for name, argument in now:
            s.step(name, work, argument)
    details = caught.value.details
    assert (details["what"], details["recorded"], details["asked"]) == (what, recorded, asked)
    assert recorded in caught.value.message and asked in caught.value.message


def test_a_step_taken_out_at_the_end_is_noticed_before_the_session_completes(place: Place) -> None:
    work = Counted()
    interrupted("k", lambda s: s.step("a", work), lambda s: s.step("b", work))
    with pytest.raises(acode.NonDeterminism, match="2 steps on record it asked for 1"), acode.session("k") as s:
        s.step("a", work)
    with acode.session("k") as s:
        s.step("a", work)
        s.step("b", work)
    assert len(work.calls) == 2


@pytest.mark.parametrize("carried", [True, False], ids=["with its context", "without"])
def test_a_program_that_asked_in_a_thread_inside_of_a_step_is_completed(place: Place, carried: bool) -> None:
    """With the context of the step, as one inside of it; without, once a person has decided to leave it out."""
    calls: list[str] = []

    def outer(s: acode.Session) -> None:
        work = partial(s.step, "inner", calls.append, "inner")
        thread = threading.Thread(target=partial(contextvars.copy_context().run, work) if carried else work)
        thread.start()
        thread.join()

    interrupted("k", lambda s: s.step("outer", outer, s))
    if not carried:
        with pytest.raises(acode.NonDeterminism, match="asked for 1"), acode.session("k") as s:
            s.step("outer", outer, s)
    with acode.session("k", on_change="raise" if carried else "keep") as s:
        s.step("outer", outer, s)
    assert calls == ["inner"]
    with opened(world(place.path), look_only=True) as store:
        notes = [envelope.event for envelope, _, _ in store.events(store.session_ids()[-1])]
    assert [one.what for one in notes if isinstance(one, ev.Noted)] == ([] if carried else ["change_kept"])


def test_a_changed_version_is_a_decision_and_the_decision_is_on_record(place: Place) -> None:
    work = Counted("old", "new")
    interrupted("k", lambda s: s.step("a", work, version=1))
    with pytest.raises(acode.NonDeterminism, match="version"), acode.session("k") as s:
        s.step("a", work, version=2)
    interrupted("k", lambda s: _is(s.step("a", work, version=2, on_change="keep"), "old"))
    interrupted("k", lambda s: _is(s.step("a", work, version=2, on_change="rerun"), "new"))
    with pytest.raises(Escalated), acode.session("k"):
        pass  # three runs in a row have made no progress
    with acode.session("k", force="I have looked at it") as s:
        assert s.step("a", work, version=2) == "new"
    assert len(work.calls) == 2
    types = [event["type"] for event in place.json("session", "history", s.id)]
    assert types.count("steps_rolled_back") == 1 and types.count("noted") == 1


def _is(found: Any, expected: Any) -> None:
    assert found == expected


def test_a_failure_reaches_the_program_and_the_next_run_tries_again(place: Place) -> None:
    work = Counted(ValueError("no"), "yes")
    with pytest.raises(ValueError, match="no"), acode.session("k") as s:
        s.step("a", work)
    assert place.json("status", s.id)["state"] == "PAUSED"
    with acode.session("k") as s:
        assert s.step("a", work) == "yes"
    attempts = [event["data"]["attempt"] for event in place.json("session", "history", s.id) if _starts(event)]
    assert attempts == [1, 2]


def _starts(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "step_started")


def test_a_failure_that_the_program_handled_is_its_outcome_for_ever(place: Place) -> None:
    work, other = Counted(KeyError("missing"), "never"), Counted("instead")

    def program(s: acode.Session) -> None:
        try:
            s.step("a", work)
        except KeyError as error:
            assert error.args == ("missing",)
            s.step("fallback", other)

    interrupted("k", program)
    with acode.session("k") as s:
        program(s)
    assert len(work.calls) == len(other.calls) == 1


def test_nested_steps_belong_to_the_step_that_asked_for_them(place: Place) -> None:
    inner = Counted("x")

    def outer(s: acode.Session, fails: bool) -> str:
        found = s.step("inner", inner) + s.step("inner", inner)
        if fails:
            raise Stop
        return str(found)

    with pytest.raises(Stop), acode.session("k") as s:
        s.step("outer", lambda: outer(s, True), idempotent=True)
    with acode.session("k") as s:
        assert s.step("outer", lambda: outer(s, False), idempotent=True) == "xx"
    assert len(inner.calls) == 2
    starts = [event["step"] for event in place.json("session", "history", s.id) if _starts(event)]
    assert starts == ["outer", "outer.inner", "outer.inner#2", "outer"]


def test_a_step_asked_for_in_the_block_of_another_session_belongs_to_the_step_around_it(place: Place) -> None:
    """Or, once that is on record, nobody would ask for it, and the session could never be completed."""
    calls: list[str] = []

    def outer(s: acode.Session) -> str:
        with acode.session("other") as other:
            other.step("theirs", lambda: s.step("ours", calls.append, "ours"))
        calls.append("outer")
        return "done"

    def program(*, stops: bool) -> None:
        with acode.session("k") as s:
            s.step("outer", outer, s)
            if stops:
                raise Stop
            s.step("last", calls.append, "last")

    with pytest.raises(Stop):
        program(stops=True)
    program(stops=False)
    assert calls == ["ours", "outer", "last"]


def test_threads_have_steps_of_their_own_and_none_runs_twice(place: Place) -> None:
    work = Counted("page")

    def read(s: acode.Session, pages: range) -> list[Any]:
        def one(n: int) -> Any:
            with s.branch(f"page-{n}"):
                return [s.step("fetch", work, n), s.step("parse", work, n)]

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(one, pages))

    interrupted("k", lambda s: read(s, range(10)))
    with acode.session("k") as s:
        assert read(s, range(20)) == [["page", "page"]] * 20
        assert s.found == 20
    assert len(work.calls) == 40 and set(work.calls) == {(n,) for n in range(20)}


def test_a_step_in_a_branch_runs_once_although_the_step_around_it_is_tried_again(place: Place) -> None:
    sent: list[str] = []

    def around() -> int:
        with s.branch("inner"):
            s.step("send", lambda: sent.append("mail"))
        if not tries:
            tries.append(1)
            raise OSError("not yet")
        return len(tries)

    tries: list[int] = []
    with acode.session("k") as s:
        assert s.step("outer", around, idempotent=True, retry=3) == 1
    assert sent == ["mail"]


@pytest.mark.release
def test_a_command_that_fails_after_leaving_thousands_of_files_is_recorded_and_tried_again(place: Place) -> None:
    """More files than one event may name: they stand in the log in pieces, as they do for a plan's step."""
    line = "mkdir -p many && cd many && seq 1 9000 | sed s/$/.txt/ | xargs touch && test -e ../go"
    with pytest.raises(StepFailed), acode.session("k") as s:
        s.run(line, outputs=["many"])
    (place.workspace / "go").touch()
    with acode.session("k") as s:
        s.run(line, outputs=["many"])
    assert len(list((place.workspace / "many").iterdir())) == 9000


def test_two_threads_that_ask_for_the_same_name_are_told_to_use_branches(place: Place) -> None:
    with acode.session("k") as s:
        s.step("a", Counted())
        with ThreadPoolExecutor(1) as pool, pytest.raises(Usage, match="chance"):
            pool.submit(s.step, "a", Counted()).result()


def test_begin_and_complete_are_for_loops_that_somebody_else_owns(place: Place) -> None:
    interrupted("k", lambda s: s.complete(s.begin("tool", "search", "acode"), {"hits": 3}))
    with acode.session("k") as s:
        begun = s.begin("tool", "search", "acode")
        assert begun.found and begun.result == {"hits": 3}
        failing = s.begin("tool", "open")
        assert not failing.found and failing.key.endswith(":tool#2:1")
        s.fail(failing, TimeoutError("no answer"))
    kinds = [event["type"] for event in place.json("session", "history", s.id)]
    assert kinds[-3:] == ["failure_handled", "resume_completed", "session_completed"]


def test_writes_and_commands_are_steps_with_the_evidence_they_have_in_plans(place: Place) -> None:
    def program(s: acode.Session) -> str:
        s.write("report.md", "hello\n", mode="0640")
        return s.run("wc -c < report.md; echo ran >> ran", idempotent=True)

    interrupted("k", program)
    with acode.session("k") as s:
        assert program(s).strip() == "6"
    assert Path("report.md").read_text() == "hello\n" and os.stat("report.md").st_mode & 0o777 == 0o640
    assert Path("ran").read_text() == "ran\n"
    with pytest.raises(StepFailed, match="exit status 3") as caught, acode.session("other") as s:
        s.run("echo why; exit 3")
    assert caught.value.details["exit_status"] == 3 and "why" in caught.value.details["output"]


def test_a_file_that_the_program_wrote_and_somebody_changed_stops_the_next_run(place: Place) -> None:
    interrupted("k", lambda s: s.write("a.txt", "one\n"))
    Path("a.txt").write_text("mine\n")
    with pytest.raises(acode.AcodeError, match="changed by somebody else"), acode.session("k"):
        pass
    with acode.session("k", changed_files="continue") as s:
        s.write("a.txt", "one\n")
    assert Path("a.txt").read_text() == "mine\n"


def test_a_file_that_a_later_step_changed_is_nobody_elses(place: Place) -> None:
    def program(s: acode.Session) -> None:
        s.write("a.txt", "one\n")
        s.step("edit", lambda: Path("a.txt").write_text("two\n"))

    interrupted("k", program)
    with acode.session("k") as s:
        program(s)
    assert Path("a.txt").read_text() == "two\n"


@pytest.mark.parametrize(("answer", "expected"), [("approve", True), ("deny", False)])
def test_a_gate_waits_for_a_person_and_the_answer_is_given_again(place: Place, answer: str, expected: bool) -> None:
    with pytest.raises(InputRequired, match="Send 4,000 mails"), acode.session("k") as s:
        s.approve("Send 4,000 mails?")
    assert place.json("status", s.id)["state"] == "AWAITING_APPROVAL"
    assert place.acode("session", answer, s.id).returncode == 0
    for _ in range(2):
        with acode.session("k") as s:
            assert s.approve("Send 4,000 mails?") is expected


def test_a_grant_for_other_words_is_none(place: Place) -> None:
    with pytest.raises(InputRequired), acode.session("k") as s:
        s.approve("Send 4 mails?", name="gate")
    place.acode("session", "approve", s.id)
    with pytest.raises(InputRequired), acode.session("k") as s:
        s.approve("Send 4,000 mails?", name="gate")


def test_one_process_at_a_time_works_on_a_key(place: Place) -> None:
    with acode.session("k") as s:
        s.step("a", Counted())
        ended = place.run('with acode.session("k") as s:\n    note("inside")\n')
        assert ended.status == 1 and SessionLocked.__name__ in ended.errors
    assert place.effects() == []


@pytest.mark.parametrize("name", ["", "a.b", "a#1", "a:b", "a/b", "two words", "-a", "a\n", "x" * 81])
def test_a_name_that_could_be_taken_for_another_is_refused(place: Place, name: str) -> None:
    with pytest.raises(Usage, match="is no name for a step"), acode.session("k") as s:
        s.step(name, Counted())


@pytest.mark.parametrize("key", ["", "  ", "a\nb", "x" * 201])
def test_a_key_that_nobody_could_type_is_refused(place: Place, key: str) -> None:
    with pytest.raises(Usage, match="is no key"), acode.session(key):
        pass


def test_a_session_is_used_in_its_block_and_its_process_only(place: Place) -> None:
    with acode.session("k") as s:
        pid = os.fork()
        if pid == 0:
            try:
                s.step("a", Counted())
            except Usage:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with pytest.raises(Usage, match="closed"):
        s.step("b", Counted())
    with pytest.raises(Usage, match="no such directory"), acode.session("k", workspace="absent"):
        pass
    with pytest.raises(UnsafeWorkspace), acode.session("k", workspace="/"):
        pass


# What keeps acode from looking is no failure of the function.


def behind_a_link() -> None:
    Path("kept").rename("moved")
    Path("kept").symlink_to("moved")


def without_descriptors() -> None:
    """From here on nothing more can be opened."""
    highest = os.dup(0)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.parametrize("hide", [behind_a_link, without_descriptors])
def test_a_function_after_which_the_files_cannot_be_seen_has_run_and_is_not_called_again(
    place: Place, hide: Callable[[], None]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    calls = []

    def send() -> str:
        calls.append("send")
        hide()
        return "sent"

    with acode.session("k") as s:
        s.write("kept/a.txt", "a\n")
        try:
            assert s.step("send", send, idempotent=True, retry=3) == "sent"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with acode.session("k") as s:
        assert s.recall("send") is not None
    assert calls == ["send"]
