"""Strict YAML for files that people write: one document of plain values, each of which knows where it stands.

It is YAML 1.2 (`no` stays text) without what hurts: no anchors and aliases (a few lines of them expand to gigabytes),
no tags, no duplicate keys, no NaN or infinity, no NUL or lone surrogates, a size cap before parsing and a depth cap
during it. The only exception that leaves this package is the error class of the source, with line and column. It never
decides what a file means; `planfile` and `config` do.
"""

from acode.yamlfile.files import decode_text, read_bytes, too_large
from acode.yamlfile.node import ERRORS_MAX, Mark, Node, Scalar, Source, closest, did_you_mean, listed, shown
from acode.yamlfile.parser import NESTING_DEPTH_MAX, parse
from acode.yamlfile.plain import from_data

__all__ = [
    "ERRORS_MAX",
    "NESTING_DEPTH_MAX",
    "Mark",
    "Node",
    "Scalar",
    "Source",
    "closest",
    "decode_text",
    "did_you_mean",
    "from_data",
    "listed",
    "parse",
    "read_bytes",
    "shown",
    "too_large",
]
