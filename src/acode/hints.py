"""Hints: a sentence about what to do next, with actions in it. Each action has two forms: the command that a person
types, and the call that a program makes.

Every module may name an action without knowing its reader. An error is rendered for a person; where it leaves the
library, for the program. An action that the library has no call for is a command in both forms. Nothing that costs is
imported, and no class is generated: every command loads this module.
"""

from __future__ import annotations

from typing import Final

SESSION: Final = "SESSION"  # in a `Command`: the name of the session that the hint is about, or nothing


class Subject:
    """The session that a hint is about. An error outlives the session's objects, so it keeps only these facts."""

    __slots__ = ("key", "name", "only_by_program")

    def __init__(self, name: str = "", key: str = "", *, only_by_program: bool = False) -> None:
        self.name: Final = name  # as it is typed: the end of its id, or the id of a foreign run
        self.key: Final = key  # under which its program opens it
        # A program began it, and left no function that `acode resume` could call: no command can resume it.
        self.only_by_program: Final = only_by_program

    def completed_by(self, other: Subject) -> Subject:
        """With the other's facts where its own are missing."""
        only = self.only_by_program if self.name else other.only_by_program
        return Subject(self.name or other.name, self.key or other.key, only_by_program=only)

    def typed(self, *words: str) -> str:
        """The command with these words, and the session's name in the place of SESSION."""
        named = (self.name if word == SESSION else word for word in words)
        return " ".join(["acode", *filter(None, named)])

    def opened_with(self, argument: str) -> str:
        """The call that opens it with an argument."""
        return f"run the program again with acode.session({self.key!r}, {argument})"


class Action:
    """One thing to do next."""

    __slots__ = ()

    def as_command(self, of: Subject) -> str:
        raise NotImplementedError

    def as_call(self, of: Subject) -> str:
        return f"{self.as_command(of)} (in a terminal)"

    def __repr__(self) -> str:
        fields: tuple[str, ...] = self.__slots__
        return f"{type(self).__name__}({', '.join(repr(getattr(self, one)) for one in fields)})"


class Command(Action):
    """A command that only a terminal offers, without the name of the program: `session repair SESSION --force`."""

    __slots__ = ("words",)

    def __init__(self, words: str) -> None:
        self.words: Final = words

    def as_command(self, of: Subject) -> str:
        return of.typed(*self.words.split(" "))


# Actions that resume a session. One that only its program can resume has the call in both forms.


class ResumeAction(Action):
    __slots__ = ()

    def as_command(self, of: Subject) -> str:
        return self.as_call(of) if of.only_by_program else self.typed(of)

    def typed(self, of: Subject) -> str:
        raise NotImplementedError


class Resume(ResumeAction):
    """Resume it as it is. `wait`: for the process that works on it; `in_person`: past the limits of automatic
    attempts.
    """

    __slots__ = ("in_person", "wait")

    def __init__(self, *, wait: bool = False, in_person: bool = False) -> None:
        self.wait: Final = wait
        self.in_person: Final = in_person

    def typed(self, of: Subject) -> str:
        return of.typed("resume", SESSION, "--wait" if self.wait else "")

    def as_call(self, of: Subject) -> str:
        if self.wait:
            return "run the program again, with wait=True"
        if self.in_person:
            return "open the session without automatic=True"
        return f"run the program again (its key is {of.key!r})" if of.key else "run the program again"


class Force(ResumeAction):
    """Resume it in spite of a refusal. `why`: with the reason, as for one more attempt of an escalated session;
    `only_flag`: in a sentence that has named the command.
    """

    __slots__ = ("only_flag", "why")

    def __init__(self, *, why: bool = True, only_flag: bool = False) -> None:
        self.why: Final = why
        self.only_flag: Final = only_flag

    def typed(self, of: Subject) -> str:
        flags = "--force --reason TEXT" if self.why else "--force"
        return flags if self.only_flag else of.typed("resume", SESSION, flags)

    def as_call(self, of: Subject) -> str:
        return of.opened_with("force='the reason'")


class AcceptChanges(ResumeAction):
    """Resume it with the files that were changed. `only_flag`: in a sentence that has named the command."""

    __slots__ = ("only_flag",)

    def __init__(self, *, only_flag: bool = False) -> None:
        self.only_flag: Final = only_flag

    def typed(self, of: Subject) -> str:
        flags = "--changed-files continue"
        return flags if self.only_flag else of.typed("resume", SESSION, flags)

    def as_call(self, of: Subject) -> str:
        return of.opened_with("changed_files='continue'")


class ChooseStrategy(ResumeAction):
    """Say whether a partial step is rolled back or repeated. `only_retry`: it cannot be rolled back."""

    __slots__ = ("only_retry", "step")

    def __init__(self, step: str, *, only_retry: bool = False) -> None:
        self.step: Final = step
        self.only_retry: Final = only_retry

    def typed(self, of: Subject) -> str:
        flags = "--strategy retry" if self.only_retry else "--strategy rollback, or --strategy retry"
        return of.typed("resume", SESSION, flags)

    def as_call(self, of: Subject) -> str:
        return f"acode.resolve({of.key!r}, {self.step!r}, 'retry') to repeat it on what stands there now"


class ReplacePlan(ResumeAction):
    """Resume it with an edited plan. `forced`: it is escalated."""

    __slots__ = ("file", "forced")

    def __init__(self, file: str, *, forced: bool = False) -> None:
        self.file: Final = file
        self.forced: Final = forced

    def typed(self, of: Subject) -> str:
        import shlex

        flags = "--force --reason TEXT" if self.forced else ""
        return of.typed("resume", SESSION, "--plan", shlex.quote(self.file), flags)

    def as_call(self, of: Subject) -> str:
        return Resume().as_call(of)  # a program has no plan file: it is corrected itself


class ResumeElsewhere(Action):
    """Resume it in the workspace that this one is a copy of."""

    __slots__ = ("workspace",)

    def __init__(self, workspace: str) -> None:
        self.workspace: Final = workspace

    def as_command(self, of: Subject) -> str:
        return of.typed("-C", self.workspace, "resume", SESSION)

    def as_call(self, of: Subject) -> str:
        return f"run the program in {self.workspace}"


# Actions that change its record, or begin another session.


class Resolve(Action):
    """State the outcome of a step. `answers`: the flags to choose from; `in_words`: with the meaning of each."""

    __slots__ = ("answers", "in_words", "step")

    ANY: Final = "--applied|--not-applied|--retry"
    IN_WORDS: Final = (
        "--applied (it happened), --not-applied (it did not) or --retry (still unknown, a repeat is accepted)"
    )

    def __init__(self, step: str, answers: str = ANY, *, in_words: bool = False) -> None:
        self.step: Final = step
        self.answers: Final = answers
        self.in_words: Final = in_words

    def as_command(self, of: Subject) -> str:
        flags = self.IN_WORDS if self.in_words else self.answers
        return of.typed("session", "resolve", SESSION, self.step, flags)

    def as_call(self, of: Subject) -> str:
        call = f"acode.resolve({of.key!r}, {self.step!r}, "
        if self.in_words:
            meaning = "'not_applied' (it did not) or 'retry' (still unknown, a repeat is accepted)"
            return f"{call}'applied') (it happened), {meaning}"
        if self.answers in ("--applied", "--not-applied", "--retry"):
            return f"{call}{self.answers.removeprefix('--').replace('-', '_')!r})"
        return f"{call}'applied'), or 'not_applied', or 'retry'"


class StateResult(Action):
    """State the value that a step has returned: a program's step whose result was not stored."""

    __slots__ = ("step",)

    def __init__(self, step: str) -> None:
        self.step: Final = step

    def as_command(self, of: Subject) -> str:
        return of.typed("session", "resolve", SESSION, self.step, "--applied", "--result", "JSON")

    def as_call(self, of: Subject) -> str:
        return f"acode.resolve({of.key!r}, {self.step!r}, 'applied', result=…)"


class Approve(Action):
    """Answer the question at which it waits. `or_deny`: the sentence offers both answers."""

    __slots__ = ("or_deny",)

    def __init__(self, *, or_deny: bool = False) -> None:
        self.or_deny: Final = or_deny

    def as_command(self, of: Subject) -> str:
        return of.typed("session", "approve", SESSION, "(or deny)" if self.or_deny else "")

    def as_call(self, of: Subject) -> str:
        return of.typed(
            "session", "approve", SESSION, "(or deny, in a terminal)" if self.or_deny else "(in a terminal)"
        )


class Rollback(Action):
    """Roll it back, or finish a rollback that was cut off. `to`: the last step that stays."""

    __slots__ = ("to",)

    def __init__(self, to: str | None = None) -> None:
        self.to: Final = to

    def as_command(self, of: Subject) -> str:
        return of.typed("session", "rollback", SESSION, f"--to {self.to}" if self.to else "")

    def as_call(self, of: Subject) -> str:
        return f"acode.rollback({of.key!r}, to={self.to!r})" if self.to else f"acode.rollback({of.key!r})"


class RestoreBlobs(Action):
    """Its blobs are missing: a backup has them, or nobody."""

    __slots__ = ()

    def as_command(self, of: Subject) -> str:
        return f"restore .agent/blobs from a backup, or: {of.typed('session', 'abandon', SESSION)}"


class BeginAgain(Action):
    """Begin another session of its kind. `how`: the words of the command; empty where a program begins it."""

    __slots__ = ("how",)

    def __init__(self, how: str = "") -> None:
        self.how: Final = how

    def as_command(self, of: Subject) -> str:
        return f"acode {self.how}" if self.how else self.as_call(of)

    def as_call(self, of: Subject) -> str:
        return "run its program with another key"


class Hint:
    """A sentence with an action at each {}, or with another hint or a text there."""

    __slots__ = ("parts", "subject", "text")

    def __init__(self, text: str, *parts: Action | Hint | str, of: Subject | str = "") -> None:
        self.text: Final = text
        self.parts: Final = parts
        self.subject: Final = Subject(of) if isinstance(of, str) else of

    def about(self, subject: Subject) -> Hint:
        """The same hint about a session that is known better."""
        return Hint(self.text, *self.parts, of=subject)

    def as_command(self) -> str:
        """The hint for a person."""
        return self._rendered(self.subject, to_program=False)

    def as_call(self, key: str = "") -> str:
        """The hint for the program that opens the session with this key."""
        return self._rendered(self.subject.completed_by(Subject(key=key)), to_program=True)

    def _rendered(self, of: Subject, *, to_program: bool) -> str:
        return self.text.format(*(_part(part, of, to_program=to_program) for part in self.parts))


def _part(part: Action | Hint | str, of: Subject, *, to_program: bool) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Hint):
        return part._rendered(part.subject.completed_by(of), to_program=to_program)
    return part.as_call(of) if to_program else part.as_command(of)
