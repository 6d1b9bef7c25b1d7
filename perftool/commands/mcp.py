"""``mcp``: serves the analysis to agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perftool.commands.options import time_option
from perftool.errors import PerfToolError


def mcp(
    root: Annotated[str, typer.Option(metavar="DIR", help="Folder with the runs; nothing else can be read.")],
    time_limit: Annotated[float, time_option(1, "Stop a call after this long, at most a day.")] = 120.0,
) -> None:
    """Serve analysis, queries and predictions to agents (MCP)

    The server uses the Model Context Protocol on stdin and stdout. It reads traces below --root, and writes nothing.
    The command needs the extra mcp.

    Examples:

      habana_perf_tool mcp --root runs/
    """
    from perftool.commands.agent_tools import serve

    if not Path(root).is_dir():
        raise PerfToolError(f"{root}: not a folder")
    serve(Path(root), time_limit)
