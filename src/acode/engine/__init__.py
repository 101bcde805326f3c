"""The only orchestration: lock, fold, decide, validate, plan, step, step, checkpoint.

Never prints, prompts or reads the environment; the world comes in as an argument. `resume` tells the whole story.
"""

from acode.engine.begin import run_plan
from acode.engine.carry_on import resume
from acode.engine.preview import preview, resumable
from acode.engine.world import Answers, Listener, Nobody, Notice, Options, Result, StopSwitch, World

__all__ = [
    "Answers",
    "Listener",
    "Nobody",
    "Notice",
    "Options",
    "Result",
    "StopSwitch",
    "World",
    "preview",
    "resumable",
    "resume",
    "run_plan",
]
