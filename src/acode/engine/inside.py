"""Commands of a plan work inside the workspace, also where a link stands by the time they start."""

from __future__ import annotations

import os

from acode.errors import UnsafePath
from acode.events.definition import Run, Step
from acode.steps.shape import Site


def refuse_working_outside(step: Step, site: Site) -> None:
    """The plan names a directory inside the workspace; a link that stands there by now may lead out of it."""
    if not isinstance(step.action, Run) or step.action.cwd is None:
        return
    inside = os.path.realpath(site.root.path)
    place = os.path.realpath(os.path.join(inside, step.action.cwd))
    if os.path.commonpath([inside, place]) != inside:
        raise UnsafePath(
            f"the working directory {step.action.cwd} leads out of the workspace, to {place}",
            hint="Put a directory in place of the link.",
            path=step.action.cwd,
        )
