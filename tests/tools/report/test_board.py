"""`netspec.board`: what it serves, to whom, and the page in a browser."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn

import netspec
from netspec.tools.report.board import board_application
from netspec.tools.report.facts import MAX_POINTS, downsample
from netspec.training.plotting.charts import Chart, Curve
from tests.chromium import PROGRAM, chromium

browser = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: `make browser` installs it")


class Board:
    """A board of a folder with the runs `first` and `second/fast`, which differ in the learning rate."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    def get(self, path: str, host: str | None = None) -> tuple[int, str, http.client.HTTPMessage]:
        """Return status, text and headers of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path, headers={} if host is None else {"Host": host})
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """Return an answer that must be JSON."""
        status, text, headers = self.get(path)
        assert (status, headers["Content-Type"]) == (200, "application/json")
        return json.loads(text)


@pytest.fixture
def board(run: Path, tmp_path: Path) -> Iterator[Board]:
    """The board, on a free port."""
    folder = tmp_path / "runs"
    for name in ("first", "second/fast"):
        shutil.copytree(run, folder / name)
    spec = folder / "second" / "fast" / "spec.yaml"
    spec.write_text(spec.read_text().replace("2e-05", "0.5"))
    assert "0.5" in spec.read_text()
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(board_application(folder), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield Board(folder, listener.getsockname()[1])
    server.should_exit = True
    thread.join(20)
    listener.close()
    assert not thread.is_alive()


def test_runs_and_curves(board: Board) -> None:
    listed = board.json("/api/runs")
    assert {run["name"]: run["state"] for run in listed["runs"]} == {"first": "finished", "second/fast": "finished"}
    data = board.json("/api/curves?run=first&run=second/fast&axis=epoch")
    assert [chart["title"] for chart in data["charts"]] == ["loss", "accuracy", "learning rate", "gradient norm"]
    assert data["charts"][0]["x"] == "epoch"
    assert len({curve["group"] for curve in data["charts"][0]["curves"]}) == 2
    assert data["settings"] == {"solver.learning_rate.initial": [2e-05, 0.5]}
    assert len(board.json("/api/curves?run=first")["charts"][0]["curves"]) == 2
    assert board.json("/api/curves")["charts"] == []


def test_a_run_that_has_just_begun_is_waited_for(board: Board) -> None:
    (board.folder / "new").mkdir()
    (board.folder / "new" / "log.jsonl").write_text("")
    assert len(board.json("/api/runs")["runs"]) == 3
    data = board.json("/api/curves?run=first&run=new")
    assert data["waiting"] == ["new"]
    assert data["charts"]
    status, text, _ = board.get("/run?name=new")
    assert status == 422
    assert "no values yet" in text


def test_pages_have_a_policy_and_no_other_site_can_read_them(board: Board) -> None:
    for path, connects in (("/", True), ("/run?name=first", False)):
        status, text, headers = board.get(path)
        policy = headers["Content-Security-Policy"]
        assert status == 200
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert ("connect-src 'self'" in policy) is connects
        assert "<title>" in text
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8001"])
def test_a_name_that_points_to_this_machine_is_refused(board: Board, host: str) -> None:
    for path in ("/", "/api/runs", "/run?name=first"):
        status, text, _ = board.get(path, host)
        assert (status, "first" in text) == (400, False)
    assert board.get("/api/runs", f"localhost:{board.port}")[0] == 200


def test_nothing_outside_of_the_folder_is_served(board: Board, run: Path) -> None:
    outside = board.folder.parent / "outside"
    shutil.copytree(run, outside)
    (board.folder / "linked").symlink_to(outside)
    (board.folder / "mixed").mkdir()
    (board.folder / "mixed" / "log.jsonl").symlink_to(outside / "log.jsonl")
    shutil.copy(outside / "log.jsonl", board.folder / "first" / "copy.jsonl")
    assert {each["name"] for each in board.json("/api/runs")["runs"]} == {"first", "second/fast"}
    for name in ("linked", "mixed", "../outside", str(outside), "first/../../outside", "first/copy.jsonl", ""):
        assert board.get(f"/run?name={quote(name)}")[0] == 404, name
        assert board.get(f"/api/curves?run={quote(name)}")[0] == 404, name
    for path in ("/../outside/log.jsonl", "/first/log.jsonl", "/%2e%2e/outside/log.jsonl", "/static/charts.js", "/run"):
        assert board.get(path)[0] == 404, path


def test_long_curves_are_thinned() -> None:
    xs = list(range(10 * MAX_POINTS + 7))
    (curve,) = downsample(Chart("loss", "step", [Curve("training", xs, [float(x) for x in xs])])).curves
    assert MAX_POINTS / 2 < len(curve.xs) <= MAX_POINTS + 1
    assert (curve.xs[0], curve.xs[-1], curve.ys[-1]) == (0, xs[-1], float(xs[-1]))
    assert downsample(Chart("loss", "step", [Curve("training", [], [])])).curves[0].xs == []


def test_mistakes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(netspec.InputError, match=r"folder .* does not exist"):
        netspec.board(tmp_path / "nosuch")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(netspec.RunError, match="cannot listen on"):
        netspec.board(tmp_path, port=taken.getsockname()[1])


@browser
@pytest.mark.slow
def test_the_page_follows_runs_and_compares_them(board: Board) -> None:
    with chromium() as page:
        page.set_window(1100, 900)
        page.open(f"http://127.0.0.1:{board.port}/")
        page.wait_for("document.querySelectorAll('#curves canvas').length === 4")
        assert page.evaluate("document.querySelector('#settings tbody').innerText").split() == [
            "solver.learning_rate.initial", "0.5", "2.00e-5",
        ]  # fmt: skip
        labels = "document.querySelectorAll('#curves figure:first-child .u-legend .u-series').length"
        assert page.evaluate(labels) == 5
        page.evaluate("document.querySelector('[aria-label=\"show first\"]').click()")
        page.wait_for(f"{labels} === 3")
        page.evaluate("document.querySelector('input[value=time]').click()")
        page.wait_for("document.querySelector('#curves .u-legend .u-label').textContent.startsWith('time')")
        shown = page.evaluate("document.querySelector('#curves canvas').toDataURL()")
        log = board.folder / "second" / "fast" / "log.jsonl"
        line = {"event": "log", "step": 7, "epoch": 3.5, "loss": 9.0, "elapsed": 9.5, "learning_rate": 0.5}
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        page.wait_for(f"document.querySelector('#curves canvas').toDataURL() !== {json.dumps(shown)}")
        page.evaluate(
            "(f => { f.value = 'FAST'; f.dispatchEvent(new Event('input')); })(document.querySelector('[name=filter]'))"
        )
        assert page.evaluate("document.querySelectorAll('#runs tbody tr').length") == 1
        page.evaluate("document.querySelector('#runs a').click()")
        page.wait_for("document.querySelectorAll('#histograms canvas').length === 2")
        assert page.errors == []
        assert all(address.startswith(f"http://127.0.0.1:{board.port}/") for address in page.requests)
