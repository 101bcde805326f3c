"""Questions to the person at the terminal. Pressing Enter, and going away, always mean the safe answer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Literal

from acode.cli.output import output_lines
from acode.cli.positions import outline_of
from acode.cli.screen import Screen
from acode.cli.signals import Signals
from acode.engine.world import Answer
from acode.errors import Usage
from acode.plan import Outcome, Settlement
from acode.redact import Redactor
from acode.state import Session
from acode.text import one_line
from acode.workspace import ChangedFile

COVERED_SHOWN_MAX = 10


def ask(screen: Screen, prompt: str) -> str | None:
    """One answer in small letters; None when the other end is closed."""
    answer = ask_for_text(screen, prompt)
    return answer.lower() if answer is not None else None


def ask_for_text(screen: Screen, prompt: str) -> str | None:
    """The typed text. The prompt stays off stdout, which is data."""
    try:
        screen.put(f"{prompt} ")
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        screen.put("\n")  # the terminal has written ^C behind the question
        raise
    if not line:
        screen.put("\n")
        return None
    return line.strip()


def forget_typed_ahead() -> None:
    """Keys that were pressed before the question was there are no answer to it: none of them may approve anything."""
    if sys.platform == "win32":
        import msvcrt

        while sys.stdin.isatty() and msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        with contextlib.suppress(termios.error, OSError, ValueError):  # no terminal, or none any more
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def choose(screen: Screen, prompt: str, choices: dict[str, str], default: str, *, stays: bool = True) -> str:
    """A choice by its letter or word; anything else is asked again, the end of input is the default.

    stays: False where the default is an answer on record, which a person who has gone away did not give.
    """
    while True:
        answer = ask(screen, prompt)
        if answer is None and not stays:
            raise KeyboardInterrupt
        if not answer:
            return default
        for letter, meaning in choices.items():
            if answer in (letter, meaning):
                return meaning
        screen.insist(f"Please answer with one of: {', '.join(choices)}")


def confirm(screen: Screen, question: str, *, default: bool) -> bool:
    answer = choose(screen, f"{question} {'[Y/n]' if default else '[y/N]'}", {"y": "yes", "n": "no"}, "")
    return default if answer == "" else answer == "yes"


class AtTerminal:
    """The answers of a person."""

    def __init__(
        self,
        screen: Screen,
        signals: Signals,
        redactor: Redactor,
        pause: Callable[[], None],
        *,
        holding: Callable[[], contextlib.AbstractContextManager[None]],  # what other tasks have to say meanwhile
        title_of: Callable[[str], str] = str,  # what a step does, as it may be shown
    ) -> None:
        self.screen = screen
        self.signals = signals
        self.redactor = redactor
        self._pause_drawing = pause
        self._holding = holding
        self._title_of = title_of
        self.wants_to_begin_anew = False  # said in so many words; Enter only stops

    def approve(self, session: Session, step: str, question: str, covers: list[str]) -> Answer | None:
        with self._holding():
            return self._approve(session, step, question, covers)

    def _approve(self, session: Session, step: str, question: str, covers: list[str]) -> Answer | None:
        self._turn_to_person()
        outline = outline_of(session)
        where = outline.name(step) if outline else step
        show = self.screen.insist
        show(f"\nApproval needed at {where} ({step}):")
        show(f"  {self._shown(question)}")
        if covers:
            show("  A yes allows:")
            for line in covers[:COVERED_SHOWN_MAX]:
                show(f"    - {self._shown(line)}")
            if len(covers) > COVERED_SHOWN_MAX:
                show(f"    … and {len(covers) - COVERED_SHOWN_MAX} more steps")
        try:
            with self.signals.asking():
                answer = ask(self.screen, "Approve? [y/N]")
        except KeyboardInterrupt:
            return "stop"
        if answer is None:
            return "stop"
        return "yes" if answer in ("y", "yes") else "no"

    def changed_files(
        self, changed: tuple[ChangedFile, ...], view: Callable[[str], str]
    ) -> Literal["continue", "abort"] | None:
        self._turn_to_person()
        show = self.screen.insist
        show("\nOptions:\n  [C]ontinue anyway\n  [A]bort and start fresh\n  [V]iew changes\n")
        meanings = {"c": "continue", "a": "abort", "v": "view"}
        while True:
            with self.signals.asking():
                choice = choose(self.screen, "Choice:", meanings, "")
            if choice != "view":
                self.wants_to_begin_anew = choice == "abort"
                return "continue" if choice == "continue" else "abort"
            for one in changed:
                show(self.redactor.text(view(one.path)).rstrip("\n"))
            show("")

    def unknown_outcome(self, settlement: Settlement) -> Literal["applied", "not_applied", "retry", "stop"] | None:
        self._turn_to_person()
        show = self.screen.insist
        show(f"\nStep {settlement.step} was in progress, and its outcome is unknown.")
        self._print_title(settlement.step)
        show(f"  Evidence: {one_line(settlement.evidence)}")
        for line in output_lines(settlement.last_output):
            show(f"  {line}")
        show("Look yourself, then say what happened:")
        show("  [A]pplied      it happened: continue after it")
        show("  [N]ot applied  it did not happen: run it")
        show("  [R]etry        still unknown, but running it again does no harm")
        show("  [S]top         decide later")
        meanings = {"a": "applied", "n": "not_applied", "r": "retry", "s": "stop"}
        choice = self._choose("Choice [S]:", meanings)
        return {"applied": "applied", "not_applied": "not_applied", "retry": "retry"}.get(choice, "stop")  # type: ignore[return-value]

    def strategy(self, settlement: Settlement) -> Literal["rollback", "retry", "stop"] | None:
        self._turn_to_person()
        show = self.screen.insist
        show(f"\nStep {settlement.step} was in progress: {settlement.outcome}. {one_line(settlement.evidence)}")
        self._print_title(settlement.step)
        meanings = {"t": "retry", "s": "stop"}
        if settlement.outcome is Outcome.PARTIAL:
            show("  [R]ollback  restore its outputs, then run it again")
            meanings = {"r": "rollback", **meanings}
        show("  re[T]ry     run it again as things are")
        show("  [S]top      decide later")
        choice = self._choose("Choice [S]:", meanings)
        return "rollback" if choice == "rollback" else "retry" if choice == "retry" else "stop"

    # Questions of an agent's session.

    def allow(self, session: Session, step: str, question: str) -> Literal["yes", "no", "always"] | None:
        self._turn_to_person()
        self.screen.insist(f"\nThe model wants to: {self._shown(question)}")
        meanings = {"y": "yes", "n": "no", "a": "always"}
        with self.signals.asking():
            choice = choose(
                self.screen,
                "Allow? [y]es, [N]o, [a]lways until the session is interrupted:",
                meanings,
                "no",
                stays=False,
            )
        return "yes" if choice == "yes" else "always" if choice == "always" else "no"

    def plan(self, session: Session, text: str, wrong: str) -> tuple[Literal["yes", "no"], str] | None:
        self._turn_to_person()
        meanings = {"a": "approve", "e": "edit", "d": "deny"}
        while True:
            self.screen.insist(f"\nThe plan:\n\n{shown_lines(self.redactor.text(text))}")
            if wrong:
                self.screen.insist(f"It cannot be used: {one_line(wrong)}")
            with self.signals.asking():
                choice = choose(self.screen, "[A]pprove, [E]dit or [D]eny? [D]", meanings, "deny", stays=False)
            if choice != "edit":
                return ("yes" if choice == "approve" else "no"), text
            text, wrong = edited(text), ""

    def reply(self, session: Session, step: str, question: str) -> str | None:
        self._turn_to_person()
        self.screen.insist(f"\nThe model asks: {self._shown(question)}")
        with self.signals.asking():
            answer = ask_for_text(self.screen, "Your answer:")
        if answer is None:
            raise KeyboardInterrupt
        return answer

    def _print_title(self, step: str) -> None:
        title = self._title_of(step)
        if title != step:
            self.screen.insist(f"  Step: {title}")

    def _turn_to_person(self) -> None:
        self._pause_drawing()
        forget_typed_ahead()

    def _choose(self, prompt: str, meanings: dict[str, str]) -> str:
        try:
            with self.signals.asking():
                return choose(self.screen, prompt, meanings, "stop")
        except KeyboardInterrupt:
            return "stop"

    def _shown(self, text: str) -> str:
        return one_line(self.redactor.text(text))


def shown_lines(text: str) -> str:
    """Several lines, each without what a terminal would obey."""
    return "\n".join(f"  {one_line(line)}" for line in text.splitlines())


def edited(text: str) -> str:
    """The text after a person edited it in their editor; unchanged where they leave without saving."""
    import click

    try:
        return click.edit(text, extension=".yml") or text
    except click.ClickException as error:
        raise Usage(
            f"the editor could not be used: {error.message}", hint="Set EDITOR to one that is there."
        ) from error
