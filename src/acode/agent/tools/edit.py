"""write_file and edit_file: a file is replaced whole, by the engine; the hashes before and after are on record.

An edit is computed from the file's present content. If somebody changes the file before it is replaced, nothing is
written: the model made its edit for another text.
"""

from __future__ import annotations

import hashlib
import stat

from acode.agent.context import Context
from acode.agent.tool_schemas import CONTENT_BYTES_MAX, EditFile, WriteFile
from acode.agent.tools.interface import BY_HAND, Answer, ending_of, execute, refused, root_of, text_in, why
from acode.agent.tools.read import FILE_BYTES_MAX
from acode.disk.own_files import describe_kind
from acode.errors import FileTooLarge, UnsafePath
from acode.events import types as ev
from acode.events.definition import Write
from acode.library.declarations import Begun
from acode.workspace import look, read_file, visible

# write_file.


def write(context: Context, begun: Begun, asked: WriteFile) -> Answer:
    size = len(asked.content.encode())
    if size > CONTENT_BYTES_MAX:
        return refused(context, begun, f"The content has {size:,} bytes, over the limit of {CONTENT_BYTES_MAX:,}.")
    try:
        found = look(root_of(context), asked.path)
    except (UnsafePath, OSError) as error:
        return refused(context, begun, why(error, asked.path))
    if found is not None and not stat.S_ISREG(found.st_mode):
        return refused(context, begun, f"{visible(asked.path)} is {describe_kind(found.st_mode)}, not a file.")
    done = execute(context, begun, Write(path=asked.path, content=asked.content))
    return done if isinstance(done, Answer) else written(context, done, asked)


def written(context: Context, completed: ev.StepCompleted, asked: WriteFile) -> Answer:
    data = asked.content.encode()
    return answer_from_record(
        context, completed, asked.path, hashlib.sha256(data).hexdigest(), f"Wrote {visible(asked.path)}"
    )


def answer_from_record(
    context: Context, completed: ev.StepCompleted, path: str, sha256: str | None, what: str
) -> Answer:
    """From the record: what stands there now may have been made by a later step."""
    ending = ending_of(context, completed)
    if ending is not None:
        return Answer(text=f"Not written: {ending.message}.", error=True)
    state = next((one for one in completed.files if one.path == path), None)
    if state is None or state.sha256 is None or sha256 not in (None, state.sha256):
        return Answer(text=BY_HAND)
    return Answer(text=f"{what}: {state.size:,} bytes.")


# edit_file.


def edit(context: Context, begun: Begun, asked: EditFile) -> Answer:
    try:
        data, state = read_file(root_of(context), asked.path, FILE_BYTES_MAX)
    except (FileTooLarge, UnsafePath, OSError) as error:
        return refused(context, begun, why(error, asked.path))
    text = text_in(data)
    if text is None:
        return refused(context, begun, f"{visible(asked.path)} is a binary file and cannot be edited.", state)
    wrong = problem_of(text, asked)
    if wrong is not None:
        return refused(context, begun, f"Nothing was changed in {visible(asked.path)}: {wrong}", state)
    content = text.replace(asked.old, asked.new)
    if len(content.encode()) > FILE_BYTES_MAX:
        return refused(context, begun, f"The file would have more than {FILE_BYTES_MAX:,} bytes.", state)
    done = execute(context, begun, Write(path=asked.path, content=content), expected_sha256=state.sha256)
    return done if isinstance(done, Answer) else edited(context, done, asked)


def problem_of(text: str, asked: EditFile) -> str | None:
    if asked.old == asked.new:
        return "old and new are the same."
    count = text.count(asked.old)
    if count == 0 and text.count(asked.old.replace("\r\n", "\n").replace("\n", "\r\n")):
        return "its lines end with \\r\\n, and those of old do not. Write \\r\\n in old and in new."
    if count == 0:
        return "old does not occur in it. Read the file, and give the text exactly as it stands there."
    if count > 1 and not asked.all:
        return f"old occurs {count:,} times. Give more of the text around it, or set all to true."
    return None


def edited(context: Context, completed: ev.StepCompleted, asked: EditFile) -> Answer:
    return answer_from_record(context, completed, asked.path, None, f"Edited {visible(asked.path)}")
