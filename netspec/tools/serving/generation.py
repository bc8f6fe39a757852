"""Requests to continue a text: their content, and the thread that generates one text at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, did_you_mean, listing
from netspec.schema.plain_json import json_text
from netspec.tools.generate import LanguageModel
from netspec.tools.serving.errors import RequestError, as_request_error
from netspec.tools.serving.open_inference import parse_json
from netspec.tools.serving.samples import decoded
from netspec.training.generation import NextTokenNet, Sampling
from netspec.training.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHOLE, NUMBER = ((int,), "a whole number"), ((int, float), "a number")
TYPES = {
    "prompt": ((str,), "a text"), "tokens": WHOLE, "temperature": NUMBER, "top_k": WHOLE, "top_p": NUMBER,
    "seed": WHOLE,
}  # fmt: skip
"""Types of the fields of a request in JSON."""


@dataclass(frozen=True)
class PromptRequest:
    """A request to continue a text; the fields are the arguments of `netspec.generate`."""

    prompt: str
    tokens: int = 200
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 1


SETTINGS = {name: value for name, value in asdict(PromptRequest("")).items() if name != "prompt"}
"""Default values of the fields of a request."""


def parse_prompt(body: bytes, content_type: str) -> PromptRequest:
    """Read a request: a JSON object, or the prompt as plain text. Raises `RequestError` 400 with all that is wrong."""
    stated = content_type in ("application/json", "text/plain")
    if content_type != "application/json" if stated else body.lstrip()[:1] != b"{":
        return PromptRequest(decoded(body))
    message = parse_json(body)
    if not isinstance(message, dict) or "prompt" not in message:
        raise RequestError(400, 'expected an object with a prompt, such as {"prompt": "To be", "tokens": 100}')
    problems = []
    for name, value in message.items():
        if name not in TYPES:
            nearest = did_you_mean(name, TYPES)
            hint = f" ({nearest})" if nearest else ""
            problems.append(f"unknown field `{name}`; expected one of {listing(list(TYPES))}{hint}")
            continue
        types, description = TYPES[name]
        is_default = value is None and name != "prompt"
        is_huge = isinstance(value, int) and not -(2**63) <= value < 2**63
        if not is_default and (isinstance(value, bool) or is_huge or not isinstance(value, types)):
            problems.append(f"`{name}` must be {description}, got {json_text(value)[:100]}")
    if problems:
        raise RequestError(400, "\n".join(problems))
    return PromptRequest(**{name: value for name, value in message.items() if value is not None})


class Generation:
    """Continues the prompts of requests, one at a time, in a thread of its own.

    `lock` is held while the net computes a token. A request may have up to `max_tokens` tokens, the prompt included.
    Raises `InputError` if the model does not predict the next token of a text.
    """

    def __init__(self, model: Model, lock: threading.Lock, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._thread = ThreadPoolExecutor(1, "netspec-generation")
        try:
            self._model = self._thread.submit(LanguageModel, model).result()
        except BaseException:
            self._thread.shutdown()
            raise
        self._net = _InterruptibleNet(self._model.generator.net, lock)
        self._model.generator.net = self._net
        self._waiting: set[Future[str]] = set()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for others to end."""
        return sum(not (future.running() or future.done()) for future in list(self._waiting))

    def submit(self, request: PromptRequest, is_canceled: Callable[[], bool]) -> Future[str]:
        """Queue a request; the future returns the text after the prompt, or raises `RequestError` 422.

        Once `is_canceled` returns True, the request ends before its next token.
        """
        future = self._thread.submit(self._generate, request, is_canceled)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def close(self) -> None:
        """Generate the texts of all requests that wait, then end the thread."""
        self._thread.shutdown()

    def _generate(self, request: PromptRequest, is_canceled: Callable[[], bool]) -> str:
        self._net.is_canceled = is_canceled
        try:
            sampling = Sampling(request.temperature, request.top_k, request.top_p)
            start = self._model.encode(request.prompt)
            if len(start) + request.tokens > self.max_tokens:
                raise InputError(
                    "the request has too many tokens", expected=f"at most {self.max_tokens:,}, the prompt included",
                    got=f"{len(start):,} + {request.tokens:,}",
                )  # fmt: skip
            return "".join(self._model.continuation(start, request.tokens, sampling, request.seed))
        except InputError as error:
            raise as_request_error(error, 422) from None


class _InterruptibleNet:
    """A net for the next token that shares its model with other threads, and stops when its request is canceled."""

    def __init__(self, net: NextTokenNet, lock: threading.Lock) -> None:
        self._net, self._lock = net, lock
        self.is_canceled: Callable[[], bool] = lambda: False

    def restart(self) -> None:
        """Forget all tokens."""
        self._net.restart()

    def logits_after(self, token: int) -> NDArray[Any]:
        """Read a token; return the logits (V,) of the one after it. Raises `CancelledError`."""
        if self.is_canceled():
            raise CancelledError
        with self._lock:
            return self._net.logits_after(token)
