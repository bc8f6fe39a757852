"""`serve`: answer requests over HTTP until a signal; `run_application` does so for any ASGI application."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from netspec.errors import InputError, RunError, install_command
from netspec.schema.load import Overrides, Source

HOST, PORT = "127.0.0.1", 8000
STOP = (signal.SIGINT, signal.SIGTERM)


def serve(
    source: Source,
    *,
    weights: str | Path | None = None,
    overrides: Overrides = (),
    name: str | None = None,
    host: str = HOST,
    port: int = PORT,
    max_batch: int = 32,
    max_delay: float = 0.002,
    max_body: int = 16 * 2**20,
    max_requests: int = 256,
    timeout: float = 30.0,
    max_tokens: int = 4096,
    device: str = "auto",
    autotune: str | None = None,
    ready: Callable[[str, str], object] = lambda name, url: None,
    on_remark: Callable[[str], object] = lambda remark: None,
) -> None:
    """Answer requests to a trained net over HTTP until SIGTERM or Ctrl-C; requests under way are finished.

    `source`, `weights`, `overrides`, `device` and `autotune` are those of `predict`. `name` is the model's name, by
    default that of the run directory. The service listens on `host` and `port`; port 0 is a free one. `max_batch`
    samples are computed at a time, and wait at most `max_delay` seconds for each other. A request may have `max_body`
    bytes and take `timeout` seconds; `max_requests` are accepted at a time. A language model continues prompts;
    prompt and answer may have `max_tokens` tokens together. `ready` is called with the model's name and the address
    once requests are accepted, and before it `on_remark` with each remark about the model.

    Raises `InputError` if the model or a setting is wrong, `RunError` if the address is in use.

        >>> netspec.serve("runs/lenet_mnist", port=8080)
    """
    _check(
        max_batch=(max_batch, 1, 4096), max_delay=(max_delay, 0, 10), max_body=(max_body, 1, 2**40),
        max_requests=(max_requests, 1, 100_000), timeout=(timeout, 0.001, 86_400), max_tokens=(max_tokens, 2, 2**20),
    )  # fmt: skip
    require_libraries()
    from netspec import __version__
    from netspec.tools.serving.application import ServingLimits, application
    from netspec.tools.serving.service import PredictionService

    with listening(host, port) as listener:
        service = PredictionService(
            source, weights=weights, overrides=overrides, name=name, max_batch=max_batch, max_delay=max_delay,
            max_tokens=max_tokens, device=device, autotune=autotune,
        )  # fmt: skip
        try:
            app = application(service, ServingLimits(max_body, max_requests, timeout), __version__)
            for remark in service.remarks:
                on_remark(remark)
            run_application(app, listener, timeout, lambda url: ready(service.name, url))
        finally:
            service.close()


def run_application(app: Any, listener: socket.socket, timeout: float, ready: Callable[[str], object]) -> None:
    """Answer requests until SIGTERM or Ctrl-C; those under way are finished, within `timeout` seconds.

    `ready` is called with the address once requests are accepted.
    """
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=int(timeout) + 1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with _stopped_by_signals(server):
        listener.listen(1024)
        ready(_url(listener))
        server.run(sockets=[listener])


def require_libraries() -> None:
    """Raise `InputError` if the libraries of the extra `serve` are not installed."""
    try:
        import starlette  # noqa: F401  # applications need it
        import uvicorn  # noqa: F401  # `run_application` needs it
    except ImportError:
        raise InputError(
            "the libraries starlette and uvicorn, which answer requests, are not installed",
            hint=install_command("serve"),
        ) from None


def _check(**ranges: tuple[float, float, float]) -> None:
    """Raise `InputError` if a setting is out of its range; `ranges` has its value, the least and the most."""
    for name, (value, least, most) in ranges.items():
        if not least <= value <= most:
            raise InputError(f"{name} must be between {least} and {most:,}", got=str(value))


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Reserve an address while the block runs, without accepting connections. Raises `RunError` if it is in use."""
    if not 0 <= port < 2**16:
        raise InputError("the port must be between 0 and 65,535", got=str(port))
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(f"{host} is not an address of this machine", expected="such as 127.0.0.1 or 0.0.0.0") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            hint = "`--port` chooses another; 0 is a free one"
            reason = (error.strerror or str(error)).lower()
            raise RunError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from None
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def _stopped_by_signals(server: Any) -> Iterator[None]:
    """Stop the server on a signal that arrives before its own handlers are installed.

    After the server has stopped, uvicorn raises the signal again, which has no further effect here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in STOP}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
