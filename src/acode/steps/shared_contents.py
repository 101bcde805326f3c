"""What a command left in its outputs, for the machine that continues the session: in a fleet the contents travel.

They are stored by their hash beside the completion, and pushed before it. What may be a secret stays; so does what is
too large. A machine that lacks such a file names it and stops.
"""

from __future__ import annotations

from collections.abc import Iterable

from acode.errors import AcodeError
from acode.events import types as ev
from acode.steps.interface import Site
from acode.store.journal import Blob
from acode.workspace import read_file

PURPOSE = "output"
STEP_BYTES_MAX = 256 * 1_048_576


def contents_to_share(site: Site, states: Iterable[ev.FileState]) -> dict[str, Blob]:
    """The contents of these files, where they still are what was seen."""
    kept: dict[str, Blob] = {}
    room = STEP_BYTES_MAX
    for state in states:
        if state.sha256 is None or state.sha256 in kept or state.size > min(site.share_bytes_max, room):
            continue
        try:
            data, _ = read_file(site.root, state.path, site.share_bytes_max, expected_sha256=state.sha256)
        except (AcodeError, OSError):  # changed again, or gone: another machine will miss it, and say so
            continue
        if site.redactor.matches(data.decode("utf-8", "surrogateescape")):
            continue
        _, kept[state.sha256] = site.store.keep(data, PURPOSE)
        room -= len(data)
    return kept
