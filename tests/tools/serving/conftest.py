"""Trained nets for tables, pictures and texts, and services for them on a free port of this machine."""

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
from PIL import Image

import netspec
from netspec.tools.serving.application import ServingLimits, application
from netspec.tools.serving.service import PredictionService

TABLE = """
netspec: 1
net:
  netspec: 1
  name: fruit_net
  inputs: {features: {shape: [4]}, label: {shape: [], dtype: int32}}
  layers: [{name: logits, type: Dense, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: csv
    path: fruit.csv
    header: true
    columns:
      size: {type: numeric, missing: mean}
      color: {type: categorical, missing: unknown, unknown: index}
      fruit: categorical
    label: fruit
    batch_size: 8
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 30, seed: 1}
"""
PICTURES = """
netspec: 1
net:
  netspec: 1
  inputs: {image: {shape: [3, 4, 4]}, label: {shape: [], dtype: int32}}
  layers: [{type: Flatten}, {name: logits, type: Dense, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: image_folder
    path: photos
    size: [4, 4]
    batch_size: 4
    transforms: [{type: Rescaling, scale: "${1 / 255}"}]
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 10, seed: 1}
"""
TEXTS = """
netspec: 1
net:
  netspec: 1
  inputs: {text: {shape: [4], dtype: int32}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Embedding, input_dim: 20, output_dim: 4}
    - {type: Flatten}
    - {name: logits, type: Dense, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: documents
    path: reviews
    tokenizer: {type: words, padding: true, unknown: true, size: 20}
    transforms: [{type: Padding, length: 4}]
    batch_size: 4
solver: {type: SGD, learning_rate: 0.5}
train: {max_steps: 30, seed: 1}
"""


@pytest.fixture(scope="session")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `reviews` that tells good words from bad ones."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.yaml").write_text(TEXTS)
    for name, text in (("bad", "awful poor"), ("good", "nice great")):
        (folder / "reviews" / name).mkdir(parents=True)
        for number in range(4):
            (folder / "reviews" / name / f"{number}.txt").write_text(text)
    netspec.train(folder / "train.yaml", run_dir=folder / "run" / "reviews", device="reference")
    return folder / "run" / "reviews"


@pytest.fixture(scope="session")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `fruit` that tells fruits by size and color."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "train.yaml").write_text(TABLE)
    rows = [f"{1 + number / 100},green,grape\n{9 + number / 100},red,apple\n" for number in range(16)]
    (folder / "fruit.csv").write_text("size,color,fruit\n" + "".join(rows))
    netspec.train(folder / "train.yaml", run_dir=folder / "fruit", device="reference")
    return folder / "fruit"


@pytest.fixture(scope="session")
def picture_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named `brightness` that tells dark pictures from light ones."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "train.yaml").write_text(PICTURES)
    for name, gray in (("dark", 20), ("light", 230)):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (6, 6), (gray + number,) * 3).save(folder / "photos" / name / f"{number}.png")
    netspec.train(folder / "train.yaml", run_dir=folder / "brightness", device="reference")
    return folder / "brightness"


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
