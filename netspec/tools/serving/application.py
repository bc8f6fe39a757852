"""The HTTP interface of a service, as an ASGI application."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from netspec.errors import did_you_mean
from netspec.schema.plain_json import json_bytes, json_text
from netspec.tools.serving.batching import Arrays
from netspec.tools.serving.errors import RequestError
from netspec.tools.serving.generation import Generation
from netspec.tools.serving.metrics import CONTENT_TYPE
from netspec.tools.serving.open_inference import HEADER_LENGTH, infer_response, parse_infer
from netspec.tools.serving.service import VERSION, PredictionService

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
PREPARING_THREADS = 4
"""Number of requests whose bodies are read and answers written at a time."""
INLINE_BYTES = 2**15
"""Length of a body up to which it is parsed in the event loop, since a thread would take longer."""
CLOSED_BY_CLIENT = 499
"""Status that metrics have for requests whose client went away, as in nginx."""


@dataclass(frozen=True)
class ServingLimits:
    """Limits of a service. A request beyond them gets an error with status 413, 503 or 504."""

    max_body: int = 16 * 2**20
    """Bytes of the body of a request."""
    max_requests: int = 256
    """Requests at a time, including those that wait."""
    timeout: float = 30.0
    """Maximum number of seconds from the beginning of a request to its answer."""


def application(service: PredictionService, limits: ServingLimits, version: str) -> Starlette:
    """Return the ASGI application of a service; `version` is that of netspec."""
    return _Endpoints(service, limits, version).application()


class _Endpoints:
    """The routes of a service."""

    def __init__(self, service: PredictionService, limits: ServingLimits, version: str) -> None:
        self._service = service
        self._limits = limits
        self._version = version
        self._threads = ThreadPoolExecutor(PREPARING_THREADS, "netspec-requests")

    def application(self) -> Starlette:
        """Return the application with all routes."""
        routes = [
            self._route("/", self._page),
            self._route("/metrics", self._metrics),
            self._route("/predict", self._predict, "POST"),
            self._route("/predict", self._describe),
            self._route("/v2", self._server),
            self._route("/v2/health/live", self._live),
            self._route("/v2/health/ready", self._live),
        ]
        for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            routes += [
                self._route(base, self._model),
                self._route(f"{base}/ready", self._model_ready),
                self._route(f"{base}/infer", self._infer, "POST"),
            ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})

    def _route(self, path: str, handler: Handler, method: str = "GET") -> Route:
        """Return a route whose handler is limited, counted, and answers errors as JSON."""
        label = f"{method} {path}"

        async def endpoint(request: Request) -> Response:
            began = time.perf_counter()
            metrics = self._service.metrics
            metrics.in_progress += 1
            status = CLOSED_BY_CLIENT
            try:
                response = await self._answer(request, handler, limited=method == "POST")
                status = response.status_code
                return response
            finally:
                metrics.in_progress -= 1
                metrics.request(label, status, time.perf_counter() - began)

        return Route(path, endpoint, methods=[method])

    async def _answer(self, request: Request, handler: Handler, *, limited: bool) -> Response:
        try:
            if limited and self._service.metrics.in_progress > self._limits.max_requests:
                raise RequestError(503, f"more than {self._limits.max_requests} requests at a time: try again later")
            async with asyncio.timeout(self._limits.timeout):
                return await handler(request)
        except RequestError as error:
            return _error(error.status, str(error))
        except TimeoutError:
            return _error(504, f"there was no answer within {self._limits.timeout:g} s")
        except ClientDisconnect:
            return _error(CLOSED_BY_CLIENT, "the client closed the connection")
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return _error(500, f"internal error: {type(error).__name__}")

    async def _body(self, request: Request) -> bytes:
        """Read the body. Raises `RequestError` 413 if it is too long."""
        most = self._limits.max_body
        length = request.headers.get("content-length", "0")
        too_long = RequestError(413, f"the body has more than {most} bytes")
        if not length.isdigit() or int(length[:19]) > 2 * most:
            raise too_long
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size <= most:
                parts.append(part)
            elif size > 2 * most:
                break  # the rest of a body that is slightly too long is read, so that the client reads the answer
        if size > most:
            raise too_long
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestError(415, "the body must not be compressed")
        return b"".join(parts)

    async def _run(self, size: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function whose time depends on `size` bytes: in a thread if there are many."""
        if size <= INLINE_BYTES:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _compute(self, arrays: Arrays) -> Arrays:
        return await asyncio.wrap_future(self._service.submit(arrays))

    async def _infer(self, request: Request) -> Response:
        self._check_model(request)
        body = await self._body(request)
        call = await self._run(len(body), parse_infer, body, request.headers.get(HEADER_LENGTH))
        outputs = await self._compute(call.arrays)
        size = sum(array.nbytes for array in outputs.values())
        content, header = await self._run(size, infer_response, self._service.name, VERSION, call, outputs)
        if header is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type="application/octet-stream", headers={HEADER_LENGTH: str(header)})

    async def _predict(self, request: Request) -> Response:
        generation = self._service.generation
        unknown = next((name for name in request.query_params if name != "top"), None)
        if unknown is not None:
            hint = did_you_mean(unknown, ["top"]) or "it has `top`"
            if generation is not None:
                hint = f"send settings in the JSON body, such as {json_text(generation.example, ascii=False)}"
            raise RequestError(400, f"/predict has no parameter `{unknown[:50]}`: {hint}")
        if generation is not None and "top" in request.query_params:
            raise RequestError(400, "`top` is a number of classes, and the answer to a prompt has none")
        top = _positive(request.query_params.get("top", "1"), "top")
        body = await self._body(request)
        if not body:
            raise RequestError(400, "the body is empty")
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type.startswith("multipart/"):
            raise RequestError(415, "send the content itself as the body, for example by curl --data-binary @FILE")
        if generation is not None:
            texts = await self._run(len(body), generation.read, body, content_type)
            answers = [{"text": text} for text in await self._generate(request, generation, texts.pieces)]
            return self._answered(answers, texts.notes)
        loop = asyncio.get_running_loop()
        samples = await loop.run_in_executor(self._threads, self._service.read, body, content_type)
        outputs = await self._compute(samples.inputs)
        size = sum(array.nbytes for array in outputs.values())
        answers = await self._run(size, self._service.answers, samples, outputs, top)
        return self._answered(answers, samples.notes)

    def _answered(self, answers: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Response:
        return _json({"model": self._service.name, "answers": answers} | ({"notes": notes} if notes else {}))

    async def _generate(self, request: Request, generation: Generation, texts: Sequence[Iterator[str]]) -> list[str]:
        """Return the texts for prompts. If the request is canceled or the client goes away, the generation ends."""
        ended = threading.Event()
        answer = asyncio.wrap_future(generation.submit(texts, ended.is_set))
        disconnect = asyncio.create_task(_disconnect(request))
        awaited: list[asyncio.Future[Any]] = [answer, disconnect]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect
            return answer.result()
        finally:
            ended.set()
            for future in awaited:
                future.cancel()

    def _check_model(self, request: Request) -> None:
        name, version = request.path_params["model"], request.path_params.get("version", VERSION)
        if name != self._service.name:
            raise RequestError(404, f"there is no model {name!r}: the model is called {self._service.name!r}")
        if version != VERSION:
            raise RequestError(404, f"the model has no version {version!r}, only {VERSION!r}")

    async def _model(self, request: Request) -> Response:
        self._check_model(request)
        return _json(self._service.metadata())

    async def _model_ready(self, request: Request) -> Response:
        self._check_model(request)
        return _json({"name": self._service.name, "ready": True})

    async def _live(self, request: Request) -> Response:
        """Answer that the service is there: it listens only after all programs are compiled."""
        return _json({"live": True})

    async def _server(self, request: Request) -> Response:
        return _json({"name": "netspec", "version": self._version, "extensions": ["binary_tensor_data"]})

    async def _describe(self, request: Request) -> Response:
        return _json(self._service.description())

    async def _metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(self._service.waiting), headers={"Content-Type": CONTENT_TYPE})

    async def _page(self, request: Request) -> Response:
        policy = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob: data:"
        return HTMLResponse(_page(), headers={"Content-Security-Policy": policy})


async def _disconnect(request: Request) -> None:
    """Wait until the client closes the connection; the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@cache
def _page() -> str:
    return (files("netspec.tools.serving") / "page.html").read_text(encoding="utf-8")


def _positive(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 1000):
        raise RequestError(400, f"`{name}` must be between 1 and 1000, got {text[:50]!r}")
    return int(text)


def _json(data: Any) -> Response:
    return Response(json_bytes(data), media_type="application/json")


def _error(status: int, message: str) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else {}
    return Response(json_bytes({"error": message}), status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer a path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    text = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not allowed here"}
    return _error(error.status_code, text.get(error.status_code, error.detail))
