"""The kernel's side of tracing: the ptrace call itself, and a stopped thread's registers. It decides nothing."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable

TRACEME, CONT, SYSCALL, SETOPTIONS, GETEVENTMSG = 0, 7, 24, 0x4200, 0x4201
GETREGSET, SETREGSET, GET_SYSCALL_INFO = 0x4204, 0x4205, 0x420E
TRACESYSGOOD, TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC, EXITKILL = 0x1, 0x2, 0x4, 0x8, 0x10, 0x100000
BEGINNINGS = (1, 2, 3)  # the events that tell of a new process or thread: fork, vfork, clone
TRAP = 5  # SIGTRAP, by number, so that this module can be imported everywhere
SYSCALL_STOP = TRAP | 0x80


@functools.cache
def _libc_ptrace() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).ptrace
    function.restype = ctypes.c_long
    function.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return function


def ptrace(request: int, thread: int, address: int | None = None, data: int | None = None) -> int:
    return _libc_ptrace()(request, thread, address, data)


def begun_by(thread: int) -> int:
    """The process or thread that the event at which this one stands is about."""
    number = ctypes.c_ulong()
    if ptrace(GETEVENTMSG, thread, None, ctypes.addressof(number)) != 0:
        raise OSError(ctypes.get_errno(), "whom it has begun cannot be read")
    return number.value


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


REGISTER_SET, REGISTERS_BYTES_MAX = 1, 512


def set_register(thread: int, index: int, value: int) -> None:
    registers = ctypes.create_string_buffer(REGISTERS_BYTES_MAX)
    vector = _Vector(ctypes.addressof(registers), REGISTERS_BYTES_MAX)
    if ptrace(GETREGSET, thread, REGISTER_SET, ctypes.addressof(vector)) != 0:
        raise OSError(ctypes.get_errno(), "registers cannot be read")
    content = bytearray(registers.raw[: vector.length])
    struct.pack_into("=q", content, index * 8, value)
    set_registers(thread, bytes(content), kind=REGISTER_SET)


def set_registers(thread: int, content: bytes, *, kind: int) -> None:
    registers = ctypes.create_string_buffer(content, len(content))
    vector = _Vector(ctypes.addressof(registers), len(content))
    if ptrace(SETREGSET, thread, kind, ctypes.addressof(vector)) != 0:
        raise OSError(ctypes.get_errno(), "registers cannot be written")
