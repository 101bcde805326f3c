"""The state of a session, derived from its log alone: the data in `session`, the fold that makes it in `folding`."""

from acode.state.plain_fold import advance_plain
from acode.state.session import (
    NESTED,
    TERMINAL,
    TRANSITIONS,
    AcceptedPast,
    Conversation,
    Failure,
    InFlight,
    Mark,
    PlanOrigin,
    Session,
    State,
    StepRecord,
)
from acode.state.session_fold import advance, begin, fold, with_boot

__all__ = [
    "NESTED",
    "TERMINAL",
    "TRANSITIONS",
    "AcceptedPast",
    "Conversation",
    "Failure",
    "InFlight",
    "Mark",
    "PlanOrigin",
    "Session",
    "State",
    "StepRecord",
    "advance",
    "advance_plain",
    "begin",
    "fold",
    "with_boot",
]
