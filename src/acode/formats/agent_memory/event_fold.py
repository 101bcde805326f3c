"""Fold the lines of all event files into one `RunEvents`.

Every answer is a maximum over the sort key (timestamp, event id, actor, file, line). A maximum needs neither the events
in memory nor the files in any order, so that a log of any length is read in memory bounded by the number of tasks, and
the result is the one that sorting everything first would give. Must never look at the disk.

For the same reason a fold can be continued where files were appended to (`EventFold.over` a `FoldState`): what the
appended lines say is the same after the other files as before them. That holds up to the limits, which admit what comes
first: `in_order` is False once lines came up against a limit that lines of a later file had reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from acode.formats.agent_memory import dialect
from acode.formats.agent_memory.disk import lines_of
from acode.formats.agent_memory.fold_state import FileState, FoldState, Order, Point, Skipped, Span
from acode.formats.agent_memory.ordinary_lines import Ordinary, first_events, read_ordinary, ties
from acode.formats.agent_memory.values import (
    CORE_ARTIFACTS,
    LAST_PHASE,
    OUR_ACTOR,
    PHASE_NUMBER_MAX,
    SKIPPED_RANGES_MAX,
    STAGE_SLUGS,
    TASKS_MAX,
    UNKNOWN_TYPES_SHOWN_MAX,
    ApprovalMark,
    Ending,
    EndMark,
    Mark,
    PhaseMark,
    RunEvents,
    TaskRecord,
)
from acode.formats.messages import shown

Blocks = Iterable[tuple[bytes | int | None, bool]]
"""Lines, and whether the last one ended; in place of a line over the limit its length, or None where nobody asks."""

Texts = dict[str, tuple[Order, Span, str]]
"""By task: which event, where its line stands, what it says."""

BEFORE_ALL_TIME_US = -(2**62)
FAILURE_CHARS_MAX = 2_000
SPELLINGS_KEPT_MAX = 1_000  # of types that mean nothing here
TOLD_BY_NAME = ("task-", *dialect.OF_NEWER_VERSIONS)
LINES_AT_ONCE_MIN = 16
KEPT_EVENTS_MAX = 20_000  # of a file, until a later one of the same task and type replaces them
KEPT_BYTES_MAX = 16 * 1024 * 1024
LATEST_COUNTS = dialect.TASK_KINDS - {"created"}
"""Of these only a task's latest decides; each creation may have a title."""
_ENDINGS: dict[str, Ending] = {"run-failed": "failed", "run-cancelled": "cancelled"}


class _Part:
    """One event file while it is folded: its state, and the lines that are not folded yet."""

    def __init__(self, state: FileState, actor: str) -> None:
        self.state = state
        self.file = state.file
        self.actor = actor
        self.ours = actor == OUR_ACTOR
        self.kept: dict[tuple[str | None, str | None], tuple[int, int, bytes]] = {}
        """By spelling of the type and by task: number, offset and text of the last ordinary line."""
        self.kept_bytes = 0
        self.kept_until_us = BEFORE_ALL_TIME_US


class EventFold:
    """The fold in progress: mutable inside this module, a frozen Story outside."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Point]] = {}
        self._titles: Texts = {}
        self._failures: Texts = {}
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
        self._unknown_task_types: set[str] = set()
        self._completed_by_others: set[str] = set()
        self._last_activity_us: int | None = None
        self._tasks_refused = 0
        self._events_read = 0
        self._skipped = Skipped()
        self._files: dict[str, FileState] = {}  # in the order in which they are read from the beginning
        self._positions: dict[str, int] = {}
        self._farthest = ""  # the last file of which anything is folded
        self._types_refused = 0
        self._limited_from = [""] * len(self._limits())
        self.in_order = True
        self._texts_to_read: dict[str, list[tuple[Texts, str, Callable[[dialect.LineEvent], str]]]] = {}

    def fold_file(self, file: str, folder_actor: str, lines: Blocks) -> None:
        """All lines of one event file, as (bytes, ended with a newline); None stands for a line over the limit."""
        self.fold_blocks(file, folder_actor, lines)

    def fold_blocks(self, file: str, folder_actor: str, blocks: Blocks) -> None:
        """The same with many lines at a time, or the lines that follow those of the file that are folded already.

        What they say does not depend on how they are cut into blocks.
        """
        state = self._begin(file, folder_actor)
        part, limits = _Part(state, folder_actor), self._limits()
        try:
            for block, ended in blocks:
                if isinstance(block, bytes):
                    lines = lines_of(block)
                    if len(lines) < LINES_AT_ONCE_MIN or not self._fold_at_once(part, lines):
                        self._fold_one_by_one(part, lines, ended)
                    state.lines += len(lines)
                    state.folded_bytes += len(block)
                else:
                    reason = "longer than an event may be" if ended else "a torn last line"
                    self._skipped.skip(state, state.lines + 1, reason)
                    state.lines += 1
                    state.folded_bytes += block or 0
        finally:
            self._fold_kept(part)  # also where the rest of the file cannot be read
            self._note_limits(file, limits)

    def _begin(self, file: str, actor: str) -> FileState:
        state = self._files.get(file)
        if state is None:
            named_us = dialect.file_time_us(file.rsplit("/", 1)[-1])
            state = FileState(file, (named_us or BEFORE_ALL_TIME_US, "", actor, file, 0))
            self._positions[file] = len(self._files)
            self._files[file] = state
        return state

    def begin_within(self, file: str, actor: str, *, lines: int, folded_bytes: int) -> None:
        """The lines before these are folded elsewhere."""
        state = self._begin(file, actor)
        state.lines, state.folded_bytes = lines, folded_bytes

    def lines_folded(self, file: str) -> int:
        return self._files[file].lines

    def _fold_one_by_one(self, part: _Part, lines: list[bytes], ended: bool) -> None:
        state, file, folder_actor, ours = part.state, part.file, part.actor, part.ours
        place, after = state.place, state.folded_bytes
        parse, time_us = dialect.parse, dialect.time_us  # a log has millions of lines
        for number, line in enumerate(lines, start=state.lines + 1):
            said, after = parse(line), after + len(line)
            if said is None:
                continue
            if isinstance(said, dialect.Unreadable):
                self._skipped.skip(state, number, said.reason if ended else "a torn last line")
                continue
            at_us = time_us(said.timestamp)
            if at_us is None:
                # Files are append-only: an event without a time of its own happened right after the line before it.
                order = (place[0], place[1], place[2], file, number)
                state.first_untimed = state.first_untimed or number
                state.untimed += 1
            else:
                order = (at_us, said.event_id or "", said.actor or folder_actor, file, number)
                if self._last_activity_us is None or at_us > self._last_activity_us:
                    self._last_activity_us = at_us
            place = order
            self._events_read += 1
            self._fold_event(said, order, at_us, (after - len(line), len(line)), ours=ours)
        state.place = place

    def _fold_at_once(self, part: _Part, lines: list[bytes]) -> bool:
        """Fold ordinary lines together. Then an event that a later one of the same task and type follows decides
        nothing: it is counted, and the latest are kept until the end of the file. The others are folded now.

        False: some line is not ordinary, and nothing was folded.
        """
        read = read_ordinary(lines)
        if read is None:
            return False
        keys = [(head.event_type or head.type, head.task_id) for head in read.heads]
        latest = dict(zip(keys, range(len(keys)), strict=True))
        spellings = {spelled for spelled, _ in latest}
        if not all(spellings):
            return False
        self._events_read += len(lines)
        first_line, offsets = part.state.lines + 1, list(accumulate(map(len, lines), initial=part.state.folded_bytes))
        if read.first_us < part.kept_until_us:
            self._fold_kept(part)
        spellings -= self._untold
        replaceable = {spelled for spelled in spellings if self._latest_counts(spelled)}
        latest = {key: at for key, at in latest.items() if key[0] in replaceable}
        for at in self._not_replaceable(read, {task for _, task in latest}, spellings - replaceable, replaceable):
            self._fold_ordinary(part, first_line + at, offsets[at], lines[at])
        for at in ties(read, latest.values()):
            spelled, task = read.heads[at].key
            if spelled in replaceable and task in self._tasks:
                self._fold_ordinary(part, first_line + at, offsets[at], lines[at])
        part.kept.update({key: (first_line + at, offsets[at], lines[at]) for key, at in latest.items()})
        part.kept_bytes += sum([len(lines[at]) for at in latest.values()])
        part.kept_until_us = read.last_us
        if len(part.kept) > KEPT_EVENTS_MAX or part.kept_bytes > KEPT_BYTES_MAX:
            self._fold_kept(part)
        last = read.heads[-1]
        order = (read.last_us, last.event_id or "", last.actor or part.actor, part.file, first_line + len(lines) - 1)
        part.state.place = order
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
            found.update(first_events(read, new, replaceable))
        return sorted(found)

    def _fold_kept(self, part: _Part) -> None:
        for (_, task), (number, offset, line) in part.kept.items():
            if task in self._tasks:  # one of a task that is none was folded as it came
                self._fold_ordinary(part, number, offset, line)
        part.kept.clear()
        part.kept_bytes = 0

    def _latest_counts(self, spelled: str | None) -> bool:
        return (self._kinds.get(spelled or "") or self._kind(spelled or ""))[1] in LATEST_COUNTS

    def _fold_ordinary(self, part: _Part, number: int, offset: int, line: bytes) -> None:
        said = dialect.parse(line)
        assert isinstance(said, dialect.LineEvent)  # or it had not been ordinary
        at_us = dialect.time_us(said.timestamp)
        order = (at_us or 0, said.event_id or "", said.actor or part.actor, part.file, number)
        self._fold_event(said, order, at_us, (offset, len(line)), ours=part.ours)

    def _fold_event(self, said: dialect.LineEvent, order: Order, at_us: int | None, span: Span, *, ours: bool) -> None:
        spelled = said.event_type or said.type or ""
        name, kind = self._kinds.get(spelled) or self._kind(spelled)
        if kind in dialect.TASK_KINDS:
            self._fold_task(said, kind, (order, name, at_us), span, ours=ours)
        elif kind != "other":
            self._fold(said, kind, (order, name, at_us), ours=ours)
        elif name.startswith(TOLD_BY_NAME):
            self._note_unknown(name)

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
        elif name not in self._unknown_task_types:
            self._types_refused += 1

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

    def _fold_task(self, said: dialect.LineEvent, kind: str, point: Point, span: Span, *, ours: bool) -> None:
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
            self._fold_title(task, said, order, span)
            return
        if kind == "failed" and (task not in self._failures or order > self._failures[task][0]):
            self._failures[task] = (order, span, _failure(said))
        if kind == "completed" and not ours:
            # Only the events of others count: acode's own completion must not cancel their later `verified`.
            self._completed_by_others.add(task)
        reopened = self._latest.get("reopened")
        if reopened is None or order > reopened[0]:
            self._latest["reopened"] = point

    def _fold_title(self, task: str, said: dialect.LineEvent, order: Order, span: Span) -> None:
        title = _title(said)
        if title and (task not in self._titles or order > self._titles[task][0]):
            self._titles[task] = (order, span, title)

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
        self._skipped.skip(self._files[file], number, reason)

    def _all_warnings(self) -> tuple[str, ...]:
        told = []
        for state in self._files.values():
            for first, last, reason in state.skipped:
                where = f"line {first}" if first == last else f"lines {first}-{last}"
                told.append(shown(f"{state.file} {where}: {reason}; skipped", chars_max=500))
        if self._skipped.untold:
            told.append(f"{self._skipped.untold} more lines of the event files were skipped")
        if self._tasks_refused:
            told.append(f"events of tasks beyond the first {TASKS_MAX} were not read ({self._tasks_refused} events)")
        if self._unknown_task_types:
            names = ", ".join(shown(name, chars_max=60) for name in sorted(self._unknown_task_types))
            told.append(f"events of unknown types change no task: {names}")
        untimed = [_untimed_warning(state) for state in self._files.values() if state.untimed]
        return (*told, *untimed[:SKIPPED_RANGES_MAX])

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
            events_read=self._events_read,
            lines_skipped=self._skipped.lines,
            warnings=self._all_warnings(),
        )

    def _task(self, task: str, marks: dict[str, Point]) -> TaskRecord:
        def mark(kind: str) -> Mark | None:
            return _mark(marks[kind]) if kind in marks else None

        return TaskRecord(
            id=task,
            title=self._titles[task][2] if task in self._titles else "",
            started=mark("started"),
            verified=mark("verified"),
            completed=mark("completed"),
            completed_by_others=task in self._completed_by_others,
            failed=mark("failed"),
            blocked=mark("blocked"),
            failure=self._failures[task][2] if task in self._failures else "",
        )

    # Continuing.

    @classmethod
    def over(
        cls,
        files: Iterable[tuple[str, str]],
        state: FoldState | None = None,
        *,
        texts: Mapping[Order, str] | None = None,
    ) -> EventFold:
        """The fold of these files (name and actor, in the order of reading), as far as the state has it.

        `texts`: titles and failures that need not be read again.
        """
        fold = cls()
        known = {file.file: file for file in state.files} if state is not None else {}
        for position, (file, actor) in enumerate(files):
            if file not in known:
                fold._begin(file, actor)
                continue
            fold._files[file], fold._positions[file] = known[file], position
            if known[file].lines:
                fold._farthest = file
        if state is not None:
            fold._take(state, texts or {})
        return fold

    def _take(self, state: FoldState, known_texts: Mapping[Order, str]) -> None:
        self._tasks, self._latest, self._phases, self._gates = state.tasks, state.latest, state.phases, state.gates
        for texts, text_of, known in (
            (self._titles, _title, state.titles),
            (self._failures, _failure, state.failures),
        ):
            for task, (order, span) in known.items():
                texts[task] = (order, span, known_texts.get(order, ""))
                if order not in known_texts:
                    self._texts_to_read.setdefault(order[3], []).append((texts, task, text_of))
        self._newer, self._approval, self._ending, self._made = state.newer, state.approval, state.ending, state.made
        self._newest_task_us, self._last_activity_us = state.newest_task_us, state.last_activity_us
        self._unknown_task_types, self._completed_by_others = state.unknown_task_types, state.completed_by_others
        self._tasks_refused, self._events_read, self._skipped = state.tasks_refused, state.events_read, state.skipped
        self._limited_from = list(state.limited_from)

    def state(self, digests: Mapping[str, bytes]) -> FoldState:
        """The fold as it stands, to be encoded before it is continued; `digests`: of what was folded of each file."""
        return FoldState(
            files=list(self._files.values()),
            digests=[digests.get(file, b"") for file in self._files],
            tasks=self._tasks,
            titles={task: (order, span) for task, (order, span, _) in self._titles.items()},
            failures={task: (order, span) for task, (order, span, _) in self._failures.items()},
            latest=self._latest,
            phases=self._phases,
            gates=self._gates,
            newer=self._newer,
            approval=self._approval,
            ending=self._ending,
            made=self._made,
            newest_task_us=self._newest_task_us,
            unknown_task_types=self._unknown_task_types,
            completed_by_others=self._completed_by_others,
            last_activity_us=self._last_activity_us,
            tasks_refused=self._tasks_refused,
            events_read=self._events_read,
            skipped=self._skipped,
            limited_from=tuple(self._limited_from),
        )

    def texts(self) -> dict[Order, str]:
        """The titles and failures that the state leaves in the files."""
        return {order: text for texts in (self._titles, self._failures) for order, _, text in texts.values()}

    @property
    def folded_bytes(self) -> int:
        return sum(state.folded_bytes for state in self._files.values())

    def read_texts(self, file: str, line_at: Callable[[Span], bytes]) -> bool:
        """Read the titles and failures that the state left in this file's lines; False: there is no such line."""
        for texts, task, text_of in self._texts_to_read.get(file, ()):
            order, span, _ = texts[task]
            said = dialect.parse(line_at(span))
            if not isinstance(said, dialect.LineEvent):
                return False
            texts[task] = (order, span, text_of(said))
        return True

    def _limits(self) -> tuple[tuple[bool, int], ...]:
        """For each limit whether it is reached, and a number that grows with all that may come up against it."""
        tasks, types = len(self._tasks), len(self._unknown_task_types)
        return (
            (self._skipped.full, self._skipped.lines),
            (tasks >= TASKS_MAX, tasks + self._tasks_refused),
            (types >= UNKNOWN_TYPES_SHOWN_MAX, types + self._types_refused),
        )

    def _note_limits(self, file: str, before: tuple[tuple[bool, int], ...]) -> None:
        positions = self._positions
        if not self._farthest or positions[file] > positions[self._farthest]:
            self._farthest = file
        for at, ((_, had), (reached, has)) in enumerate(zip(before, self._limits(), strict=True)):
            if not reached:
                continue
            self._limited_from[at] = self._limited_from[at] or self._farthest
            if has != had and positions[self._limited_from[at]] > positions[file]:
                self.in_order = False


def _title(said: dialect.LineEvent) -> str:
    title = dialect.details_of(said).get("title")
    return title[:500] if isinstance(title, str) else ""


def _failure(said: dialect.LineEvent) -> str:
    text = bytes(said.details)[:FAILURE_CHARS_MAX].decode("utf-8", "replace")
    return "" if text == "null" else text


def _untimed_warning(state: FileState) -> str:
    many = "s" if state.untimed > 1 else ""
    return shown(
        f"{state.file} line {state.first_untimed}: {state.untimed} event{many} without a usable timestamp;"
        " each takes its place after the line before it",
        chars_max=500,
    )


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
