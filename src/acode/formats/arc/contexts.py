"""Write the saved contexts of suspended tasks in the state that the repaired checkpoint records.

The checkpoint is written first and names both contents of each context, before and after its count grew. So a crash
between the two writes differs from tampering, and no resume is counted twice.
"""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from acode.errors import UnsafePath
from acode.formats.arc import disk
from acode.formats.arc.checkpoint import Raw, shown
from acode.formats.arc.diagnose import run_name
from acode.formats.arc.surroundings import TEXT_BYTES_MAX
from acode.formats.arc.suspended import injection, path_problem, prepared, with_resume_count
from acode.formats.unreadable import needed


def settle_contexts(root: Path, value: Raw, *, run_id: str) -> tuple[dict[str, str], list[str]]:
    """The text to inject for each task, its count raised on disk first; and the tasks that start cold after all."""
    texts, warnings = {}, []
    for task, entry in prepared(value).items():
        path = entry.get("context_path")
        problem = path_problem(path, run_name(value, run_id), task)
        data = _settled(root, str(path), entry) if problem is None else None
        if isinstance(data, bytes):
            texts[task] = injection(task, entry, data)
        else:
            warnings.append(f"Suspended task {shown(task, 60)}: cold_restart, because {problem or data}.")
    return texts, warnings


def _settled(root: Path, path: str, entry: Raw) -> bytes | str:
    """The context with its raised count, or why it cannot be used. A file that the machine refuses is no cold start."""
    try:
        with needed(path), disk.parent_of(root, path) as (holder, name):
            data, status = disk.read_bounded(holder, name, TEXT_BYTES_MAX)
            found = hashlib.sha256(data).hexdigest()
            if found == entry.get("after_sha256"):
                return data
            if found != entry.get("before_sha256") or not isinstance(entry.get("resume_count"), int):
                return "the context file was changed after it was checked"
            raised = with_resume_count(data, entry["resume_count"])
            disk.put(holder, name, raised, mode=stat.S_IMODE(status.st_mode))
            return raised
    except UnsafePath as problem:
        return shown(problem.message)
    except OSError as problem:
        return f"the context file cannot be used: {shown(problem)}"
