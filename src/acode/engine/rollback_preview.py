"""What a rollback would leave as it is, because somebody changed it since; for whoever wants to know beforehand.

Looks only, with the same comparison as the rollback itself.
"""

from __future__ import annotations

from acode.engine.rollback import Undoing, finished_steps, images, step_taken_back
from acode.engine.workspace_store import opened
from acode.engine.world import World
from acode.events.types import FileState
from acode.state import Session
from acode.workspace import Root, needs_of


def what_stays(world: World, session: Session, undoing: tuple[Undoing, ...]) -> dict[str, tuple[str, ...]]:
    """By step. The latest step that touched a path is compared with it; what is not its own stays for all before it."""
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        past = finished_steps(store, session)
        stays: dict[str, bool] = {}
        found: dict[str, tuple[str, ...]] = {}
        for one in undoing:
            known = past.get(one.step)
            left = {state.path: state for state in known.left} if known else {}
            own = images(step_taken_back(session, one.step, past), known)
            for image in own:
                if image.path not in stays:
                    post = left.get(image.path, FileState(path=image.path))
                    stays[image.path] = needs_of(root, image, post) == "kept"
            found[one.step] = tuple(image.path for image in own if stays[image.path])
        return found
