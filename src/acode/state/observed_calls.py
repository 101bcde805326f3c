"""The calls of an observed agent that it must not repeat without knowing how they ended, as the fold keeps them.

`untold`: calls that ended while the agent was away. `fresh`: calls whose end its process was shown; killed now, it may
not have kept them.
"""

from __future__ import annotations

from acode.events import types as ev
from acode.events.codec import Envelope
from acode.state.session import InFlight, Session

FRESH_MAX = 64  # calls of one turn of an agent; no model asks for as many at once


def see_performer(session: Session, performer: ev.Performer) -> None:
    """What another process of the agent saw last, it may not have kept."""
    if performer != session.performer:
        session.untold = {**session.untold, **session.fresh}
        session.fresh = {}
    session.performer = performer


def see_end(session: Session, event: ev.StepCompleted, flight: InFlight | None) -> None:
    """Of a call that an agent must not repeat without knowing: settled, it was away; else it may be killed now.

    That it begins another call does not show that it has kept this one's result: a model asks for several at once, and
    some agents keep none before the last of them has ended. The end of its turn shows it.
    """
    asked = event.asked or (flight.started.asked if flight is not None else None)
    ended = {asked.arguments: event.step} if asked is not None else {}
    if event.settled:
        session.untold = {**session.untold, **ended}
    else:
        _keep_fresh(session, ended)


def _keep_fresh(session: Session, ended: dict[str, str]) -> None:
    kept = {arguments: step for arguments, step in session.fresh.items() if arguments not in ended}
    session.fresh = dict([*kept.items(), *ended.items()][-FRESH_MAX:])


def repeat_denied(session: Session, event: ev.RepeatDenied, envelope: Envelope) -> None:
    """Who was shown the evidence may be killed before it has kept that: then another process of it is shown it too."""
    if event.performer is not None:
        see_performer(session, event.performer)
    session.untold = {key: step for key, step in session.untold.items() if key != event.arguments}
    session.fresh = {key: step for key, step in session.fresh.items() if key != event.arguments}
    if event.performer is not None:
        _keep_fresh(session, {event.arguments: event.step})
