"""`netspec serve`: a process that answers requests, and finishes them after SIGTERM."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
import time
from urllib.request import urlopen

import pytest

from netspec.errors import install_command
from tests.cli.listening import listening


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_signal_finishes_requests_under_way(trained, number):
    body = json.dumps({"inputs": [{"name": "features", "shape": [1, 3], "datatype": "FP32", "data": [4, 4, 4]}]})
    with listening("serve", "run", "--device", "reference") as (process, url):
        port = int(url.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.putrequest("POST", "/v2/models/run/infer")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:20].encode())
        deadline = time.monotonic() + 10
        while "in_progress 2" not in metrics(port):  # this request, and the one for metrics
            assert time.monotonic() < deadline
        process.send_signal(number)
        while accepts(port):
            assert time.monotonic() < deadline
        assert process.poll() is None, "a request is under way"
        connection.send(body[20:].encode())
        answer = connection.getresponse()
        logits = json.loads(answer.read())["outputs"][0]["data"]
        assert (answer.status, logits[1] > logits[0]) == (200, True)
        connection.close()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def metrics(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def test_an_address_in_use_is_reported_before_the_model_is_loaded(netspec, trained):
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        result = netspec("serve", "run", "--port", port)
    assert result.status == 1
    assert f"error: cannot listen on 127.0.0.1:{port}: address already in use\n" in result.err
    assert "hint: `--port` chooses another" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-batch", "0"), "max_batch must be between 1 and 4,096"),
        (("--timeout", "0"), "timeout must be between"),
        (("--max-size", "0"), "max_body must be between"),
        (("--max-tokens", "1048577"), "max_tokens must be between 2 and 1,048,576"),
        (("--port", "70000"), "the port must be between 0 and 65,535"),
        (("--host", "no such host"), "no such host is not an address of this machine"),
    ],
)
def test_a_wrong_setting_is_reported(netspec, trained, words, message):
    result = netspec("serve", "run", *words)
    assert (result.status, message in result.err) == (2, True)


def test_missing_libraries_are_named(netspec, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = netspec("serve", "run")
    assert result.status == 2
    assert f"hint: {install_command('serve')}" in result.err
