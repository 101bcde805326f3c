"""Validate, keep and restore the files of the workspace.

All access goes through `Root`, which opens nothing outside of the workspace and follows no link. Paths are text as
`disk.path_names` describes it. The engine and a person decide about a changed file; nothing here does.
"""

from acode.disk.open_beneath import Directory, Root
from acode.disk.path_names import bytes_of, text_of, visible
from acode.workspace.agentdir import ensure_agent_dir
from acode.workspace.declared_outputs import Listing, matching_paths, outputs_in
from acode.workspace.files import hash_file, look, read_file, remove_temp, sync_paths, temp_name, write_atomic
from acode.workspace.links import way_of
from acode.workspace.manifest import ChangedFile, changed, restat
from acode.workspace.preimages import Captured, capture, capture_outputs, capture_paths, missing_parents
from acode.workspace.report import IntegrityReport, SuspiciousFile, diff, integrity_report
from acode.workspace.rollback import RestoredOutputs, is_back, needs_of, restore, restore_outputs

__all__ = [
    "Captured",
    "ChangedFile",
    "Directory",
    "IntegrityReport",
    "Listing",
    "RestoredOutputs",
    "Root",
    "SuspiciousFile",
    "bytes_of",
    "capture",
    "capture_outputs",
    "capture_paths",
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
    "read_file",
    "remove_temp",
    "restat",
    "restore",
    "restore_outputs",
    "sync_paths",
    "temp_name",
    "text_of",
    "visible",
    "way_of",
    "write_atomic",
]
