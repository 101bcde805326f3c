"""Crash tests that need no help from the program: it is stopped, killed, failed or recorded at its system calls.

ptracer kills for real; snapshots keeps what a kill would leave; power says what a power cut may leave; faults makes
calls fail. None of them needs root, a shim or a flag in the product. Linux on x86-64 and aarch64; elsewhere tests skip.
"""

from __future__ import annotations

import pytest

from tests.crash.harness.ptracer import why_impossible

needs_ptrace = pytest.mark.skipif(why_impossible() is not None, reason=why_impossible() or "")
