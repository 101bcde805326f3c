"""Validate, keep and put back the files of the workspace.

All access goes through `Root`, which opens nothing outside of the workspace and follows no link. Paths are text as
`disk.path_names` describes it. Nothing here decides what to do about a changed file; that is the engine's and a
person's work.
"""

from acode.disk.open_beneath import Directory, Root
from acode.disk.path_names import bytes_of, text_of, visible
from acode.workspace.agentdir import ensure_agent_dir
from acode.workspace.declared_outputs import Listing, matching_paths, outputs_in
from acode.workspace.files import hash_file, look, read_file, remove_temp, sync_paths, temp_name, write_atomic
from acode.workspace.links import way_of
from acode.workspace.manifest import ChangedFile, changed, restat
from acode.workspace.preimages import Captured, capture, capture_outputs, missing_parents
from acode.workspace.report import IntegrityReport, SuspiciousFile, diff, integrity_report
from acode.workspace.rollback import PutBack, is_back, needs_of, put_back, restore

__all__ = [
    "Captured",
    "ChangedFile",
    "Directory",
    "IntegrityReport",
    "Listing",
    "PutBack",
    "Root",
    "SuspiciousFile",
    "bytes_of",
    "capture",
    "capture_outputs",
    "changed",
    "diff",
    "ensure_agent_dir",
    "hash_file",
    "integrity_report",
    "is_back",
    "look",
    "matching_paths",
    "missing_parents",
    "needs_of",
    "outputs_in",
    "put_back",
    "read_file",
    "remove_temp",
    "restat",
    "restore",
    "sync_paths",
    "temp_name",
    "text_of",
    "visible",
    "way_of",
    "write_atomic",
]
