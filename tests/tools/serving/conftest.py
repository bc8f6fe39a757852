"""Services for trained nets on a free port of this machine."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

import netspec
from netspec.tools.serving.application import ServingLimits, application
from netspec.tools.serving.service import PredictionService

SALES = """
netspec: 1
net:
  netspec: 1
  inputs: {past: {shape: [4]}, label: {shape: [2]}}
  layers: [{name: forecast, type: Dense, units: 2, from: past}]
  losses: [{type: MeanSquaredError, from: [forecast, label]}]
data:
  train:
    source: csv
    path: sales.csv
    header: true
    columns: COLUMNS
    label: sales
    windows: {length: 4, horizon: 2, group: shop}
    batch_size: 8
train: {max_steps: 1}
solver: {type: SGD, learning_rate: 0.01}
"""

HOMES = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [2]}, label: {shape: []}}
  layers: [{type: Dense, units: 1, from: features}, {type: Reshape, target_shape: [], name: y}]
  losses: [{type: MeanSquaredError, from: [y, label]}]
data:
  train:
    source: csv
    path: homes.csv
    header: true
    columns: {size: numeric, rooms: {type: numeric, missing: 3}, price: numeric}
    label: price
    batch_size: 2
train: {max_steps: 1}
solver: {type: SGD, learning_rate: 0.001}
"""


@dataclass
class Client:
    """A client of a service, with a connection for each request."""

    port: int
    service: PredictionService

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """Return status, body and headers of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        status, body, _ = self.request("GET", path)
        return status, json.loads(body)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Send bytes, or other data as JSON; return status and JSON of the answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if isinstance(body, bytes) else {"Content-Type": "application/json"}
        status, answer, _ = self.request("POST", path, content, {**kind, **headers})
        return status, json.loads(answer)

    def error(self, path: str, body: Any, **headers: str) -> tuple[int, str]:
        """Return status and message of a request that must fail."""
        status, answer = self.post(path, body, **headers)
        assert list(answer) == ["error"]
        assert "Traceback" not in answer["error"]
        return status, answer["error"]


Serve = Callable[..., Client]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start services of runs: `serve(run, limits, **settings of PredictionService)`."""
    running: list[tuple[uvicorn.Server, threading.Thread, socket.socket, PredictionService]] = []

    def start(run: Path, limits: ServingLimits | None = None, **settings: Any) -> Client:
        service = PredictionService(run, device="reference", **settings)
        listener = socket.create_server(("127.0.0.1", 0))
        app = application(service, limits or ServingLimits(), "0")
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread, listener, service))
        return Client(listener.getsockname()[1], service)

    yield start
    for server, thread, listener, service in running:
        server.should_exit = True
        thread.join(20)
        listener.close()
        service.close()
        assert not thread.is_alive()


@pytest.fixture
def fruit(serve: Serve, table_run: Path) -> Client:
    """A client of the service of `table_run`."""
    return serve(table_run)


def features(samples: int) -> np.ndarray:
    """Return inputs of the net of `table_run`."""
    return np.random.default_rng(samples).standard_normal((samples, 4)).astype(np.float32)


def sales_run(folder: Path, columns: str, features: int = 0) -> Path:
    """Return a run that forecasts two days of sales from four, for two shops; `columns` is the declaration in YAML.

    The net reads the past sales, or the `features` that the columns have.
    """
    spec = SALES.replace("COLUMNS", columns)
    if features:
        spec = spec.replace("past: {shape: [4]}", f"features: {{shape: [4, {features}]}}")
        spec = spec.replace("[{name: forecast", "[{type: Flatten, from: features}, {name: forecast")
        spec = spec.replace(", from: past", "")
    (folder / "train.yaml").write_text(spec)
    rows = [f"{shop},{day}.5,{day % 7}.25" for shop in ("north", "south") for day in range(20)]
    (folder / "sales.csv").write_text("\n".join(["shop,temperature,sales", *rows]) + "\n")
    netspec.train(folder / "train.yaml", run_dir=folder / "sales", device="reference")
    return folder / "sales"
