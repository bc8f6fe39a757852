"""`netspec board`: follow all runs below a folder in a browser."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from netspec.cli.app import CommandApp

app = CommandApp()


@app.add_command("netspec board", "netspec board experiments --port 9000")
def board(
    folder: Annotated[
        str, typer.Argument(metavar="[DIR]", help="Show the runs in and below this folder [default: runs].")
    ] = "runs",
    *,
    port: Annotated[int, typer.Option(metavar="N", help="Listen on port N; 0 takes a free one.")] = 8001,
) -> None:
    """Follow all runs below a folder in a browser.

    The page lists the runs, draws the curves of selected runs in the same charts while they run, and shows the settings
    that differ. Only this machine can connect, and nothing outside the folder is shown. Needs the extra `serve`. Ctrl-C
    ends it.
    """
    from netspec.tools.report.board import board as show_board

    show_board(folder, port=port, ready=_announce)


def _announce(url: str) -> None:
    print(f"runs at {url}", file=sys.stderr, flush=True)
