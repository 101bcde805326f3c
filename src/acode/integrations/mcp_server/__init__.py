"""An MCP server: durable tools for agents that speak the Model Context Protocol; `acode mcp` starts it.

Needs the extra: pip install "acode-cli[mcp]".
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["serve"]


def serve(workspace: str | os.PathLike[str] = ".", *, key: str | None = None) -> None:
    """Serve the tools run, write, sql, commit, approve, status and explain on stdin and stdout.

    Each call that changes something has a key and is a step of one session: the same key returns the recorded answer,
    also after the server was killed; another key is a new step. key: of the session; without it, `mcp` and the name of
    the client, so that a client finds its calls again. It returns when the client closes the pipe.
    """
    from acode.integrations.mcp_server.server import serve_on_stdio

    serve_on_stdio(Path(workspace), key)
