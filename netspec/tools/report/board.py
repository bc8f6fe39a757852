"""`board`: the runs below a folder as a page that follows them, and their curves in the same charts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, NetspecError, near_path
from netspec.schema.plain_json import json_text
from netspec.tools.comparing.run_curves import AXES, read_run_log, run_charts
from netspec.tools.comparing.runs import RunSummary, differing_settings, read_resolved, runs
from netspec.tools.report.facts import downsample, run_facts
from netspec.tools.report.html import document
from netspec.tools.report.page import page, zoom_buttons
from netspec.tools.serving.server import listening, require_libraries, run_application
from netspec.training.plotting.charts import AxisScale
from netspec.training.run_directory import RunDir

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOST, PORT = "127.0.0.1", 8001
"""The board is for this machine only, whatever the port."""
TIMEOUT = 5.0
"""Seconds that open requests get when the board ends."""
MAX_RUNS = 20
"""Number of runs whose curves are drawn in the same charts."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""Headers of all answers: other sites can neither read nor embed them."""
BODY = """
<header><h1>Runs</h1><p id="status" role="status">loading…</p></header>
<main>
<form id="run-filter"><label>Show names that contain <input type="text" name="filter" autocomplete="off"></label></form>
<div class="scroll"><table id="runs"><thead></thead><tbody></tbody></table></div>
<section aria-label="Comparison"><h2>Curves</h2>
<form id="curve-controls">
<fieldset>over AXES</fieldset>
<label><input type="checkbox" name="log"> logarithmic</label>
ZOOM
</form>
<p class="soft" id="no-curves">Select runs to compare their curves.</p>
<div id="curves"></div></section>
<section aria-label="Settings"><h2>Settings that differ</h2>
<div class="scroll"><table id="settings"><thead></thead><tbody></tbody></table></div></section>
</main>
"""


def board(
    folder: str | Path = "runs", *, port: int = PORT, ready: Callable[[str], object] = lambda url: None
) -> None:  # fmt: skip
    """Show all runs below a folder in a browser, while they run, until SIGTERM or Ctrl-C.

    The page lists the runs with their states and results, and draws the curves of selected runs in the same charts,
    with the settings that differ. Each run has a page as `report` writes it with `log_only`. Only this machine can
    connect (127.0.0.1), and only runs in the folder are shown. Port 0 is a free one. `ready` is called with the
    address once requests are accepted.

    Raises `InputError` if there is no such folder, `RunError` if the port is in use.

        >>> netspec.board("runs", port=8001)
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"folder {root} does not exist", expected="a folder with runs", hint=near_path(root))
    require_libraries()
    with listening(HOST, port) as listener:
        run_application(board_application(root), listener, TIMEOUT, ready)


def board_application(root: Path) -> Starlette:
    """Return the ASGI application of a board."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.routing import Route

    pages = _Pages(root)
    return Starlette(
        routes=[
            Route("/", pages.show_index),
            Route("/api/runs", pages.list_runs),
            Route("/api/curves", pages.show_curves),
            Route("/run", pages.show_run),
        ],
        # A site that makes its name point to this machine is not a page of the board.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)],
        exception_handlers={HTTPException: _refuse, NetspecError: _refuse},
    )


class _Pages:
    """Answers to the requests of a board.

    Starlette calls functions that are not coroutines in threads, so that reading files delays nobody.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        axes = "".join(
            f'<label><input type="radio" name="axis" value="{axis}"{" checked" * (axis == AXES[0])}> {axis}</label>'
            for axis in AXES
        )
        body = BODY.replace("AXES", axes).replace("ZOOM", zoom_buttons())
        self._index = document("Runs · netspec board", body, None, ["board.js"], connects=True)

    def show_index(self, request: Request) -> Response:
        return _answer_page(*self._index)

    def list_runs(self, request: Request) -> Response:
        listed = [
            {name: value for name, value in run.as_json().items() if name != "run_dir"}
            for run in runs_in(self._root)[::-1]
        ]
        return _answer_json({"folder": str(self._root), "runs": listed})

    def show_curves(self, request: Request) -> Response:
        axis = next((name for name in AXES if name == request.query_params.get("axis")), AXES[0])
        return _answer_json(comparison(self._selected(request, "run"), axis))

    def show_run(self, request: Request) -> Response:
        from starlette.exceptions import HTTPException

        selected = self._selected(request, "name")
        if not selected:
            raise HTTPException(404, "the address names no run")
        return _answer_page(*page(run_facts(selected[0].run_dir, log_only=True)))

    def _selected(self, request: Request, parameter: str) -> list[RunSummary]:
        from starlette.exceptions import HTTPException

        by_name = {run.name: run for run in runs_in(self._root)}
        names = list(dict.fromkeys(request.query_params.getlist(parameter)))[:MAX_RUNS]
        if unknown := [name for name in names if name not in by_name]:
            raise HTTPException(404, f"no such run: {unknown[0]!r}")
        return [by_name[name] for name in names]


def _answer_json(data: Any) -> Response:
    from starlette.responses import Response

    return Response(json_text(data), media_type="application/json", headers=HEADERS)


def _answer_page(text: str, policy: str) -> Response:
    from starlette.responses import HTMLResponse

    return HTMLResponse(text, headers={**HEADERS, "Content-Security-Policy": policy})


async def _refuse(request: Request, error: Exception) -> Response:
    from starlette.exceptions import HTTPException
    from starlette.responses import Response

    if isinstance(error, HTTPException):
        return Response(error.detail, error.status_code, HEADERS, "text/plain")
    return Response(str(error), 422, HEADERS, "text/plain")


def runs_in(root: Path) -> list[RunSummary]:
    """Return the runs below a folder, the oldest first, without those whose files are links to other places."""
    inside = root.resolve()

    def is_inside(run: RunSummary) -> bool:
        files = RunDir(run.run_dir)
        paths = (files.log, files.spec, files.histograms)
        return all(path.resolve().is_relative_to(inside) for path in paths)

    return [run for run in runs(root) if is_inside(run)]


def comparison(chosen: list[RunSummary], axis: Any) -> dict[str, Any]:
    """Return charts of runs over an axis, and the settings that differ between them, as plain data."""
    logs, waiting = [], []
    for run in chosen:
        try:
            logs.append(read_run_log(run.run_dir))
        except InputError:  # it has just begun
            waiting.append(run.name)
    names = list(dict.fromkeys(name for log in logs for name in log.all_names()))
    charts = run_charts(logs, AxisScale(), axis, names) if logs else []
    settings = differing_settings([read_resolved(run.run_dir) for run in chosen]) if len(chosen) > 1 else {}
    return {
        "runs": [run.name for run in chosen],
        "waiting": waiting,
        "charts": [downsample(chart).as_json() for chart in charts],
        "settings": settings,
    }
