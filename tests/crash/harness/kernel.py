"""The kernel's side of tracing: the ptrace call itself, a filter of system calls, and a stopped thread's registers.

It decides nothing.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterable, Mapping

TRACEME, CONT, SYSCALL, SETOPTIONS, GETEVENTMSG = 0, 7, 24, 0x4200, 0x4201
GETREGSET, SETREGSET, GET_SYSCALL_INFO = 0x4204, 0x4205, 0x420E
TRACESYSGOOD, TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC, EXITKILL = 0x1, 0x2, 0x4, 0x8, 0x10, 0x100000
TRACESECCOMP, SECCOMP_EVENT = 0x80, 7
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


# Which calls a process is stopped at. The filter is inherited, and a call that it names fails in a process that nobody
# traces: it is for those that start none, and for those whose processes are all traced.

SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER_MODE = 38, 22, 2
ALLOW, TELL_THE_TRACER = 0x7FFF0000, 0x7FF00000
LOAD_WORD, JUMP_IF_EQUAL, JUMP_IF_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
CALL_NUMBER, CALL_MACHINE, FIRST_ARGUMENT = 0, 4, 16
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

Instruction = tuple[int, int, int, int]


def stop_at(machine: str, numbers: Iterable[int], flags: Mapping[int, tuple[int, int]]) -> None:
    """From now on this process stops only at these calls; of those in `flags` (their argument, its bits) at some."""
    program = _program(MACHINES[machine], list(numbers), flags)
    encoded = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(encoded)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if prctl(SET_SECCOMP, FILTER_MODE, ctypes.addressof(header), 0, 0) == 0:
        return
    prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # without which only root may set a filter
    if prctl(SET_SECCOMP, FILTER_MODE, ctypes.addressof(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


def _program(machine: int, numbers: list[int], flags: Mapping[int, tuple[int, int]]) -> list[Instruction]:
    program = [(LOAD_WORD, 0, 0, CALL_MACHINE), (JUMP_IF_EQUAL, 1, 0, machine), (RETURN, 0, 0, ALLOW)]
    program.append((LOAD_WORD, 0, 0, CALL_NUMBER))
    for number in numbers:
        program += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, TELL_THE_TRACER)]
    for number, (argument, bits) in flags.items():
        program += [
            (JUMP_IF_EQUAL, 0, 4, number),
            (LOAD_WORD, 0, 0, FIRST_ARGUMENT + 8 * argument),  # its lower half: both machines are little-endian
            (JUMP_IF_ANY_BIT, 0, 1, bits),
            (RETURN, 0, 0, TELL_THE_TRACER),
            (RETURN, 0, 0, ALLOW),
        ]
    return [*program, (RETURN, 0, 0, ALLOW)]
