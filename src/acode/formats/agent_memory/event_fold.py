"""Fold the lines of all event files into one `RunEvents`.

Every answer is a maximum over the sort key (timestamp, event id, actor, file, line). A maximum needs neither the events
in memory nor the files in any order, so that a log of any length is read in memory bounded by the number of tasks, and
the result is the one that sorting everything first would give. Must never look at the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import takewhile

from acode.formats.agent_memory import dialect
from acode.formats.agent_memory.disk import lines_of
from acode.formats.agent_memory.ordinary_lines import Ordinary, read_ordinary
from acode.formats.agent_memory.values import (
    CORE_ARTIFACTS,
    DUPLICATES_TRACKED_MAX,
    LAST_PHASE,
    OUR_ACTOR,
    PHASE_NUMBER_MAX,
    SKIPPED_RANGES_MAX,
    STAGE_SLUGS,
    TASKS_MAX,
    ApprovalMark,
    Ending,
    EndMark,
    Mark,
    PhaseMark,
    RunEvents,
    TaskRecord,
)
from acode.formats.messages import shown

Order = tuple[int, str, str, str, int]
Point = tuple[Order, str, "int | None"]
"""Sort key, folded type, own time: what becomes a Mark if it is still the latest at the end."""

BEFORE_ALL_TIME_US = -(2**62)
FAILURE_CHARS_MAX = 2_000
UNKNOWN_TYPES_SHOWN_MAX = 10
SPELLINGS_KEPT_MAX = 1_000  # of types that mean nothing here
TOLD_BY_NAME = ("task-", *dialect.OF_NEWER_VERSIONS)
LINES_AT_ONCE_MIN = 16
TRACKED_ID_CHARS_MAX = 64
KEPT_EVENTS_MAX = 20_000  # of a file, until a later one of the same task and type replaces them
KEPT_BYTES_MAX = 16 * 1024 * 1024
LATEST_COUNTS = dialect.TASK_KINDS - {"created"}
"""Of these only a task's latest decides; each creation may have a title."""
_ENDINGS: dict[str, Ending] = {"run-failed": "failed", "run-cancelled": "cancelled"}


class _Part:
    """One event file while it is folded: where the last line stands in the order of events."""

    def __init__(self, file: str, actor: str) -> None:
        self.file = file
        self.actor = actor
        self.ours = actor == OUR_ACTOR
        named_us = dialect.file_time_us(file.rsplit("/", 1)[-1])
        self.place: Order = (named_us or BEFORE_ALL_TIME_US, "", actor, file, 0)
        self.untimed = 0
        self.first_untimed = 0
        self.kept: dict[tuple[str | None, str | None], tuple[int, bytes]] = {}
        """By spelling of the type and by task: number and text of the last ordinary line, which is not folded yet."""
        self.kept_bytes = 0
        self.kept_until_us = BEFORE_ALL_TIME_US


class EventFold:
    """The fold in progress: mutable inside this module, a frozen Story outside."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Point]] = {}
        self._titles: dict[str, tuple[Order, str]] = {}
        self._failures: dict[str, tuple[Order, str]] = {}
        self._latest: dict[str, Point] = {}
        self._phases: dict[str, tuple[Point, PhaseMark]] = {}
        self._gates: dict[int, Point] = {}
        self._newer = False
        self._approval: tuple[Point, dict[str, str]] | None = None
        self._ending: Ending = "completed"
        self._made: set[str] = set()
        self._kinds: dict[str, tuple[str, dialect.Kind]] = {}
        self._untold: set[str | None] = set()  # spellings of types that nothing follows from
        self._newest_task_us = BEFORE_ALL_TIME_US  # no task's first event is later
        self._seen: set[str | int] = set()  # ids, and hashes of long ids and of lines without one
        self._long_ids_seen = False
        self._unknown_task_types: set[str] = set()
        self._completed_by_others: set[str] = set()
        self._last_activity_us: int | None = None
        self._warnings: list[str] = []
        self._skipped_ranges: list[list[object]] = []
        self.events_read = 0
        self.duplicates = 0
        self.lines_skipped = 0
        self._untold_skips = 0
        self._tasks_refused = 0

    def warn(self, message: str) -> None:
        if len(self._warnings) < SKIPPED_RANGES_MAX:
            self._warnings.append(shown(message, chars_max=500))

    def fold_file(
        self, file: str, folder_actor: str, lines: Iterable[tuple[bytes | None, bool]], first_line: int = 1
    ) -> None:
        """All lines of one event file, as (bytes, ended with a newline); None stands for a line over the limit."""
        self.fold_blocks(file, folder_actor, lines, first_line)

    def fold_blocks(
        self, file: str, folder_actor: str, blocks: Iterable[tuple[bytes | None, bool]], first_line: int = 1
    ) -> None:
        """The same with many lines at a time. What they say does not depend on how they are cut into blocks."""
        part = _Part(file, folder_actor)
        try:
            for block, ended in blocks:
                if block is None:
                    self._skip(file, first_line, "longer than an event may be" if ended else "a torn last line")
                    first_line += 1
                    continue
                lines = lines_of(block)
                at_once = len(lines) >= LINES_AT_ONCE_MIN and self._fold_at_once(part, block, lines, first_line)
                if not at_once:
                    self._fold_one_by_one(part, lines, ended, first_line)
                first_line += len(lines)
        finally:
            self._fold_kept(part)  # also where the rest of the file cannot be read
        if part.untimed:
            many = "s" if part.untimed > 1 else ""
            self.warn(
                f"{file} line {part.first_untimed}: {part.untimed} event{many} without a usable timestamp;"
                " each takes its place after the line before it"
            )

    def _fold_one_by_one(self, part: _Part, lines: list[bytes], ended: bool, first_line: int) -> None:
        file, folder_actor, ours, place = part.file, part.actor, part.ours, part.place
        parse, time_us = dialect.parse, dialect.time_us  # a log has millions of lines
        for number, line in enumerate(lines, start=first_line):
            said = parse(line)
            if said is None:
                continue
            if isinstance(said, dialect.Unreadable):
                self._skip(file, number, said.reason if ended else "a torn last line")
                continue
            at_us = time_us(said.timestamp)
            if at_us is None:
                # Files are append-only: an event without a time of its own happened right after the line before it.
                order = (place[0], place[1], place[2], file, number)
                part.first_untimed = part.first_untimed or number
                part.untimed += 1
            else:
                order = (at_us, said.event_id or "", said.actor or folder_actor, file, number)
                if self._last_activity_us is None or at_us > self._last_activity_us:
                    self._last_activity_us = at_us
            place = order
            self._count(said.event_id, line)
            self._fold_event(said, order, at_us, ours=ours)
        part.place = place

    def _fold_at_once(self, part: _Part, block: bytes, lines: list[bytes], first_line: int) -> bool:
        """Fold ordinary lines together. Then an event that a later one of the same task and type follows decides
        nothing: it is counted, and the latest are kept until the end of the file. The others are folded now.

        False: some line is not ordinary, and nothing was folded.
        """
        read = read_ordinary(block, len(lines))
        if read is None:
            return False
        latest = {(head.event_type or head.type, head.task_id): at for at, head in enumerate(read.heads)}
        spellings = {spelled for spelled, _ in latest}
        if not all(spellings):
            return False
        self._count_all(read.event_ids)
        if read.first_us < part.kept_until_us:
            self._fold_kept(part)
        spellings -= self._untold
        replaceable = {spelled for spelled in spellings if self._latest_counts(spelled)}
        latest = {key: at for key, at in latest.items() if key[0] in replaceable}
        for at in self._not_replaceable(read, {task for _, task in latest}, spellings - replaceable, replaceable):
            self._fold_ordinary(part, first_line + at, lines[at])
        for at in _ties(read, latest.values()):
            spelled, task = read.heads[at].key
            if spelled in replaceable and task in self._tasks:
                self._fold_ordinary(part, first_line + at, lines[at])
        part.kept.update((key, (first_line + at, lines[at])) for key, at in latest.items())
        part.kept_bytes += sum(len(lines[at]) for at in latest.values())
        part.kept_until_us = read.last_us
        if len(part.kept) > KEPT_EVENTS_MAX or part.kept_bytes > KEPT_BYTES_MAX:
            self._fold_kept(part)
        last = read.heads[-1]
        part.place = (
            read.last_us,
            read.event_ids[-1],
            last.actor or part.actor,
            part.file,
            first_line + len(lines) - 1,
        )
        if self._last_activity_us is None or read.last_us > self._last_activity_us:
            self._last_activity_us = read.last_us
        return True

    def _not_replaceable(
        self, read: Ordinary, tasks: set[str | None], each: set[str | None], replaceable: set[str | None]
    ) -> list[int]:
        """The events, in order, that a later one does not replace: of types of which each counts, of no task, and the
        first of a task that may begin here.
        """
        known = self._tasks
        unknown = {task for task in tasks if task not in known}
        new: set[str | None] = {task for task in unknown if task is not None and task == dialect.usable_id(task)}
        if len(known) + len(new) > TASKS_MAX:
            new = set()
        none = unknown - new
        if read.first_us <= self._newest_task_us:
            new |= {task for task in tasks - unknown if read.first_us <= known[task or ""]["first"][0][0]}
        found = set[int]()
        if each or none:
            found.update(
                at
                for at, head in enumerate(read.heads)
                if (spelled := head.event_type or head.type) in each
                or (head.task_id in none and spelled in replaceable)
            )
        if new:
            found.update(_first_events(read, new, replaceable))
        return sorted(found)

    def _fold_kept(self, part: _Part) -> None:
        for (_, task), (number, line) in part.kept.items():
            if task in self._tasks:  # one of a task that is none was folded as it came
                self._fold_ordinary(part, number, line)
        part.kept.clear()
        part.kept_bytes = 0

    def _latest_counts(self, spelled: str | None) -> bool:
        return (self._kinds.get(spelled or "") or self._kind(spelled or ""))[1] in LATEST_COUNTS

    def _fold_ordinary(self, part: _Part, number: int, line: bytes) -> None:
        said = dialect.parse(line)
        assert isinstance(said, dialect.LineEvent)  # or it had not been ordinary
        at_us = dialect.time_us(said.timestamp)
        order = (at_us or 0, said.event_id or "", said.actor or part.actor, part.file, number)
        self._fold_event(said, order, at_us, ours=part.ours)

    def _fold_event(self, said: dialect.LineEvent, order: Order, at_us: int | None, *, ours: bool) -> None:
        spelled = said.event_type or said.type or ""
        name, kind = self._kinds.get(spelled) or self._kind(spelled)
        if kind in dialect.TASK_KINDS:
            self._fold_task(said, kind, (order, name, at_us), ours=ours)
        elif kind != "other":
            self._fold(said, kind, (order, name, at_us), ours=ours)
        elif name.startswith(TOLD_BY_NAME):
            self._note_unknown(name)

    def _count(self, event_id: str | None, line: bytes) -> None:
        self.events_read += 1
        key, seen = event_id or hash(line.strip()), self._seen
        if isinstance(key, str) and len(key) > TRACKED_ID_CHARS_MAX:
            key, self._long_ids_seen = hash(key), True
        if key in seen:
            self.duplicates += 1
        elif len(seen) < DUPLICATES_TRACKED_MAX:
            seen.add(key)

    def _count_all(self, event_ids: list[str]) -> None:
        """The same for events that all have an id."""
        seen, room = self._seen, DUPLICATES_TRACKED_MAX - len(self._seen)
        if 0 < room < len(event_ids) or (
            (room > 0 or self._long_ids_seen) and max(map(len, event_ids)) > TRACKED_ID_CHARS_MAX
        ):
            for event_id in event_ids:
                self._count(event_id, b"")
            return
        self.events_read += len(event_ids)
        if room <= 0:
            if not seen.isdisjoint(event_ids):
                self.duplicates += sum(map(seen.__contains__, event_ids))
            return
        known = len(seen)
        seen.update(event_ids)
        self.duplicates += known + len(event_ids) - len(seen)

    def _kind(self, spelled: str) -> tuple[str, dialect.Kind]:
        name = dialect.folded(spelled)
        known = (name, dialect.KINDS.get(name, "other"))
        if known[1] != "other" or len(self._kinds) < SPELLINGS_KEPT_MAX:
            self._kinds[spelled] = known
            if known[1] == "other" and not name.startswith(TOLD_BY_NAME):
                self._untold.add(spelled)
        return known

    def _note_unknown(self, name: str) -> None:
        if dialect.is_newer(name):
            self._newer = True
        elif len(self._unknown_task_types) < UNKNOWN_TYPES_SHOWN_MAX:
            self._unknown_task_types.add(name)

    def _fold(self, said: dialect.LineEvent, kind: dialect.Kind, point: Point, *, ours: bool) -> None:
        name = point[1]
        if kind in {"phase", "phase_done", "gate"}:
            self._fold_phase(said, kind, point, ours=ours)
        elif kind == "made":
            made = dialect.artifact_made(name, said)
            if made in CORE_ARTIFACTS:
                self._made.add(made)
        elif kind == "ended":
            if _later(point, self._latest.get("ended")):
                self._latest["ended"], self._ending = point, _ENDINGS.get(name, "completed")
        elif kind == "resumed":
            self._keep_latest("reopened", point)
            self._fold_approval(said, point, ours=ours)

    def _fold_task(self, said: dialect.LineEvent, kind: str, point: Point, *, ours: bool) -> None:
        task, order = said.task_id, point[0]
        marks = self._tasks.get(task) if task is not None else None
        if task is None or marks is None:  # one that is known already can be used as it stands
            task = dialect.task_id_of(said)
            if task is None:
                self._skip(order[3], order[4], f"a {point[1]} event without a usable task id")
                return
            marks = self._tasks.get(task)
        if marks is None:
            if len(self._tasks) >= TASKS_MAX:
                self._tasks_refused += 1
                return
            marks = self._tasks[task] = {"first": point}
            self._newest_task_us = max(self._newest_task_us, order[0])
        elif order < marks["first"][0]:
            marks["first"] = point
        known = marks.get(kind)
        if known is None or order > known[0]:
            marks[kind] = point
        if kind == "created":
            self._fold_title(task, said, order)
            return
        if kind == "failed" and (task not in self._failures or order > self._failures[task][0]):
            text = bytes(said.details)[:FAILURE_CHARS_MAX].decode("utf-8", "replace")
            self._failures[task] = (order, "" if text == "null" else text)
        if kind == "completed" and not ours:
            # Only the events of others count: acode's own completion must not cancel their later `verified`.
            self._completed_by_others.add(task)
        reopened = self._latest.get("reopened")
        if reopened is None or order > reopened[0]:
            self._latest["reopened"] = point

    def _fold_title(self, task: str, said: dialect.LineEvent, order: Order) -> None:
        title = dialect.details_of(said).get("title")
        if isinstance(title, str) and title and (task not in self._titles or order > self._titles[task][0]):
            self._titles[task] = (order, title[:500])

    def _fold_approval(self, said: dialect.LineEvent, point: Point, *, ours: bool) -> None:
        """Which bytes are approved stands in acode's own events only."""
        digests = dialect.approved_digests(said) if ours else None
        if digests is not None and (self._approval is None or point[0] > self._approval[0][0]):
            self._approval = (point, digests)

    def _fold_phase(self, said: dialect.LineEvent, kind: str, point: Point, *, ours: bool) -> None:
        phase = dialect.phase_of(said)
        order = point[0]
        if phase is None:
            self._skip(order[3], order[4], f"a {point[1]} event without a phase from 0 to {PHASE_NUMBER_MAX}")
            return
        self._fold_approval(said, point, ours=ours)
        if not ours and (kind == "gate" or point[1] == "phase-transition"):
            self._keep_latest("moved_by_others", point)
        self._newer = self._newer or (not ours and phase > LAST_PHASE)
        if kind == "gate":
            if _later(point, self._gates.get(phase)):
                self._gates[phase] = point
            return
        known = self._phases.get(kind)
        if known is None or order > known[0][0]:
            self._phases[kind] = (point, _phase_mark(said, phase, point, ours=ours))
        if kind == "phase":
            self._keep_latest("reopened", point)

    def _keep_latest(self, what: str, point: Point) -> None:
        if _later(point, self._latest.get(what)):
            self._latest[what] = point

    def _skip(self, file: str, number: int, reason: str) -> None:
        self.lines_skipped += 1
        last = self._skipped_ranges[-1] if self._skipped_ranges else None
        if last and last[0] == file and last[2] == number - 1 and last[3] == reason:
            last[2] = number
        elif len(self._skipped_ranges) < SKIPPED_RANGES_MAX:
            self._skipped_ranges.append([file, number, number, reason])
        else:
            self._untold_skips += 1

    def _all_warnings(self) -> tuple[str, ...]:
        told = []
        for file, first, last, reason in self._skipped_ranges:
            where = f"line {first}" if first == last else f"lines {first}-{last}"
            told.append(shown(f"{file} {where}: {reason}; skipped", chars_max=500))
        if self._untold_skips:
            told.append(f"{self._untold_skips} more lines of the event files were skipped")
        if self._tasks_refused:
            told.append(f"events of tasks beyond the first {TASKS_MAX} were not read ({self._tasks_refused} events)")
        if self._unknown_task_types:
            names = ", ".join(shown(name, chars_max=60) for name in sorted(self._unknown_task_types))
            told.append(f"events of unknown types change no task: {names}")
        return (*told, *self._warnings)

    def run_events(self) -> RunEvents:
        ended = self._latest.get("ended")
        reopened, moved = self._latest.get("reopened"), self._latest.get("moved_by_others")
        phase, phase_done = self._phases.get("phase"), self._phases.get("phase_done")
        by_first = sorted(self._tasks.items(), key=lambda item: (item[1]["first"][0], item[0]))
        return RunEvents(
            tasks=tuple(self._task(task, marks) for task, marks in by_first),
            phase=phase[1] if phase else None,
            phase_done=phase_done[1] if phase_done else None,
            gates={number: _mark(point) for number, point in sorted(self._gates.items())},
            newer=self._newer,
            approval=ApprovalMark(digests=self._approval[1], mark=_mark(self._approval[0])) if self._approval else None,
            moved_by_others=_mark(moved) if moved else None,
            made=tuple(name for name in CORE_ARTIFACTS if name in self._made),
            end=EndMark(ending=self._ending, mark=_mark(ended)) if ended else None,
            reopened=_mark(reopened) if reopened else None,
            last_activity_us=self._last_activity_us,
            events_read=self.events_read,
            duplicates=self.duplicates,
            lines_skipped=self.lines_skipped,
            warnings=self._all_warnings(),
        )

    def _task(self, task: str, marks: dict[str, Point]) -> TaskRecord:
        def mark(kind: str) -> Mark | None:
            return _mark(marks[kind]) if kind in marks else None

        return TaskRecord(
            id=task,
            title=self._titles.get(task, (None, ""))[1],
            started=mark("started"),
            verified=mark("verified"),
            completed=mark("completed"),
            completed_by_others=task in self._completed_by_others,
            failed=mark("failed"),
            blocked=mark("blocked"),
            failure=self._failures.get(task, (None, ""))[1],
        )


def _first_events(read: Ordinary, tasks: set[str | None], spellings: set[str | None]) -> Iterator[int]:
    """The first event of each of these tasks with such a type, and the others of the task at the same time."""
    heads, moments = read.heads, read.moments
    first: dict[str | None, str | datetime] = {}
    for at in [at for at, head in enumerate(heads) if head.task_id in tasks]:
        head, moment = heads[at], moments[at]
        if (head.event_type or head.type) in spellings and first.setdefault(head.task_id, moment) == moment:
            yield at


def _ties(read: Ordinary, latest: Iterable[int]) -> Iterator[int]:
    """Events at the same time, of which their lines do not say which is later: the others of the same type and task as
    one of the latest, and all at the end, where the next block may have more.
    """
    heads, moments = read.heads, read.moments
    end = len(moments) - 1
    yield from takewhile(lambda at: moments[at] == moments[end], range(end, -1, -1))
    for last in latest:
        at = last - 1
        while at >= 0 and moments[at] == moments[last]:
            if heads[at].key == heads[last].key:
                yield from (at, last)
            at -= 1


def _phase_mark(said: dialect.LineEvent, phase: int, point: Point, *, ours: bool) -> PhaseMark:
    """Where acode wrote no name of the phase, it counted as the resume rules do."""
    stage = None
    if ours:
        name = dialect.details_of(said).get("phase_name")
        stage = STAGE_SLUGS.index(name) if name in STAGE_SLUGS else min(phase, LAST_PHASE)
    return PhaseMark(phase=phase, mark=_mark(point), stage=stage, by_person=said.trigger == "user_approval")


def _later(point: Point, known: Point | None) -> bool:
    return known is None or point[0] > known[0]


def _mark(point: Point) -> Mark:
    order, name, at_us = point
    return Mark(name=name, at_us=at_us, event_id=order[1], actor=order[2], file=order[3], line=order[4], order=order)
