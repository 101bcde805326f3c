"""read_file: show a text, by lines. The content is recorded with its hash, so that a resume notices a change."""

from __future__ import annotations

from acode.agent.context import Context
from acode.agent.tool_schemas import ReadFile
from acode.agent.tools.interface import Answer, looked, refused, root_of, text_in, why
from acode.errors import FileTooLarge, UnsafePath
from acode.library.declarations import Begun
from acode.workspace import read_file, visible

FILE_BYTES_MAX = 8 * 1_048_576
SHOWN_BYTES_MAX = 65_536
SHOWN_BYTES_MIN = 4_096


def show(context: Context, begun: Begun, asked: ReadFile) -> Answer:
    try:
        data, state = read_file(root_of(context), asked.path, FILE_BYTES_MAX)
    except FileTooLarge as error:
        return refused(context, begun, f"{error.message}. Use search, or a command that shows a part of it.")
    except (UnsafePath, OSError) as error:
        return refused(context, begun, why(error, asked.path))
    text = text_in(data)
    if text is None:
        return refused(context, begun, f"{visible(asked.path)} is a binary file of {len(data):,} bytes.", state)
    if not text:
        return looked(context, begun, Answer(text=f"[{visible(asked.path)} is empty]"), state)
    lines = lines_of(text)
    if asked.offset_lines > len(lines):
        return refused(context, begun, f"{visible(asked.path)} has only {len(lines):,} lines.", state)
    text = part(lines, asked.offset_lines, asked.limit_lines, shown_bytes_max(context))
    return looked(context, begun, Answer(text=text), state)


def shown_bytes_max(context: Context) -> int:
    """About an eighth of the model's context: a token is some four bytes."""
    return max(SHOWN_BYTES_MIN, min(SHOWN_BYTES_MAX, context.world.config.settings.model.context_tokens // 2))


def lines_of(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends a line, as editors and compilers count."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def part(lines: list[str], first: int, count: int, bytes_max: int) -> str:
    """The lines as they stand in the file, as many as fit, and how to get the others."""
    room, taken = bytes_max, list[str]()
    for line in lines[first - 1 : first - 1 + count]:
        room -= len(line.encode())
        if room < 0:
            break
        taken.append(line)
    if not taken:
        data = lines[first - 1].encode()
        begin = data[:bytes_max].decode("utf-8", "ignore")
        cut = f"only the first {bytes_max:,} of its {len(data):,} bytes"
        return f"{begin}\n[line {first} of {len(lines):,}: {cut}]"
    last = first + len(taken) - 1
    shown = "".join(taken)
    if (first, last) == (1, len(lines)):
        return shown
    more = f"; continue with offset_lines={last + 1}" if last < len(lines) else ""
    between = "" if shown.endswith("\n") else "\n"
    return f"{shown}{between}[lines {first:,} to {last:,} of {len(lines):,}{more}]"
