"""Requests to generate text from a prompt: their content, and the thread that generates one text at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from netspec.errors import InputError, did_you_mean, listing
from netspec.schema.plain_json import json_text
from netspec.tools.inference.generate import TextModel
from netspec.tools.inference.sampling_defaults import SEED
from netspec.tools.serving.errors import RequestError, as_request_error
from netspec.tools.serving.open_inference import parse_json
from netspec.tools.serving.samples import decoded, is_json_text
from netspec.training.generation.language_model import NextTokenNet
from netspec.training.inference.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

INTEGER, NUMBER = ((int,), "a whole number"), ((int, float), "a number")
FIELD_TYPES = {
    "prompt": ((str,), "a text"), "tokens": INTEGER, "temperature": NUMBER, "top_k": INTEGER, "top_p": NUMBER,
    "seed": INTEGER,
}  # fmt: skip
"""Types of the fields of a request in JSON."""
LARGEST = 2**63 - 1
"""Largest integer in a request."""
MAX_PROBLEMS = 10
"""Number of problems that an error lists."""
MAX_PROMPTS = 1000
"""Number of prompts in a request."""
MAX_WAITING = 8
"""Number of requests that wait for the thread, which generates one text at a time."""
CHARACTERS_PER_TOKEN = 64
"""Longer prompts per allowed token are refused before they are encoded: tokens of text are much shorter."""


@dataclass(frozen=True)
class PromptRequest:
    """A request to generate text from a prompt; the fields are arguments of `netspec.generate`."""

    prompt: str
    tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None


class PromptTexts(NamedTuple):
    """The texts for the prompts of a request."""

    pieces: Sequence[Iterator[str]]
    """The pieces of each text, which are computed when they are read."""
    notes: Sequence[str]
    """Sentences about characters or words that the vocabulary does not have."""


def parse_prompts(body: bytes, content_type: str, example: str, column: str | None = None) -> list[PromptRequest]:
    """Read prompts: a JSON object, a list of objects, or one prompt as plain text.

    `example` is a right request for messages. `column` is another name of the field `prompt`: the column of source
    texts that an encoder-decoder net reads. Raises `RequestError` 400, listing every problem up to `MAX_PROBLEMS`.
    """
    if not is_json_text(body, content_type):
        return [PromptRequest(decoded(body))]
    data = parse_json(body)
    messages = data if isinstance(data, list) and data else [data]
    if not all(isinstance(message, dict) and not message.keys().isdisjoint({"prompt", column}) for message in messages):
        raise RequestError(400, f"expected an object with a prompt, such as {example}, or a list of these")
    if len(messages) > MAX_PROMPTS:
        raise RequestError(400, f"a request may have at most {MAX_PROMPTS:,} prompts, got {len(messages):,}")
    problem_lines = (
        f"{_title(number, len(messages))}{problem}"
        for number, message in enumerate(messages, 1)
        for problem in _problems(message, "prompt" if column is None or "prompt" in message else column)
    )
    problems = list(islice(problem_lines, MAX_PROBLEMS))
    if problems:
        raise RequestError(400, "\n".join(problems))
    return [
        PromptRequest(**{
            "prompt" if name == column else name: value for name, value in message.items() if value is not None
        })
        for message in messages
    ]  # fmt: skip


def _title(number: int, count: int) -> str:
    """Return the begin of an error about one of `count` prompts."""
    return f"prompt {number}: " if count > 1 else ""


@contextmanager
def _request_errors(title: str) -> Iterator[None]:
    """Raise an `InputError` of the block as `RequestError` 422, whose message begins with `title`."""
    try:
        yield
    except InputError as error:
        raise RequestError(422, f"{title}{as_request_error(error, 422)}") from None


def _problems(message: Mapping[str, Any], prompt: str) -> Iterator[str]:
    """Yield what is wrong with the names and types of the fields of a request; `prompt` is the name of its prompt."""
    fields = {prompt if name == "prompt" else name: kind for name, kind in FIELD_TYPES.items()}
    for name, value in message.items():
        if name not in fields:
            nearest = did_you_mean(name[:50], fields)
            hint = f" ({nearest})" if nearest else ""
            yield f"unknown field `{name[:50]}`; expected one of {listing(list(fields))}{hint}"
            continue
        types, description = fields[name]
        is_default = value is None and name != prompt
        if not is_default and (isinstance(value, bool) or not isinstance(value, types)):
            yield f"`{name}` must be {description}, got {json_text(value, ascii=False)[:100]}"
        elif isinstance(value, int) and value > LARGEST:
            yield f"`{name}` must be at most {LARGEST}, got {json_text(value, ascii=False)[:100]}"


class Generation:
    """Generates text from the prompts of requests, one at a time, in a thread of its own.

    `lock` is held while the net computes a token. Each time a net with attention has filled its window, it computes
    half of the window again under the same lock. A request may have up to `max_tokens` tokens, the prompt included.
    Raises `InputError` if the model does not generate text.
    """

    def __init__(self, model: Model, lock: threading.Lock, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._thread = ThreadPoolExecutor(1, "netspec-generation")
        try:
            self._model = self._thread.submit(TextModel, model).result()
        except BaseException:
            self._thread.shutdown()
            raise
        self._net = _InterruptibleNet(self._model.generator.net, lock)
        self._model.generator.net = self._net
        self._unfinished: set[Future[list[str]]] = set()

    @property
    def _column(self) -> str | None:
        """The column of source texts that an encoder-decoder net reads."""
        return None if self._model.source is None else self._model.source[0]

    @cached_property
    def example(self) -> dict[str, Any]:
        """A request that the model answers as it is."""
        prompt = self._model.example_prompt()
        tokens = min(100, self.max_tokens - len(self._model.encode(prompt)), self._model.max_tokens(100))
        return {self._column or "prompt": prompt, "tokens": tokens}

    @property
    def settings(self) -> dict[str, Any]:
        """Default values of the fields of a request."""
        settings = {name: value for name, value in asdict(PromptRequest("")).items() if name != "prompt"}
        temperature = self._model.sampling(None, None, None, None).temperature
        return settings | {"tokens": self._model.max_tokens(None), "temperature": temperature, "seed": SEED}

    @property
    def description(self) -> dict[str, Any]:
        """Default settings and limits; of an encoder-decoder net, also the column and length of source texts."""
        limits = {"settings": self.settings, "max_tokens": self.max_tokens, "example": self.example}
        if self._model.source is None:
            return limits
        column, length = self._model.source
        return limits | {"source": column, "max_source_tokens": length}

    @property
    def waiting(self) -> int:
        """Number of requests that wait for others to end."""
        return sum(not (future.running() or future.done()) for future in list(self._unfinished))

    def read(self, body: bytes, content_type: str) -> PromptTexts:
        """Return the texts generated from the prompts in a body, and notes about these.

        Raises `RequestError` 400 or 422.
        """
        requests = parse_prompts(body, content_type, json_text(self.example, ascii=False), self._column)
        texts, notes = [], []
        for number, request in enumerate(requests, 1):
            title = _title(number, len(requests))
            with _request_errors(title):
                texts.append(self._pieces(request))
            note = self._model.describe_unknown(request.prompt)
            notes += [] if note is None else [f"{title}{note}"]
        return PromptTexts(texts, notes)

    def _pieces(self, request: PromptRequest) -> Iterator[str]:
        """Return the text generated from a prompt, in pieces. Raises `InputError`."""
        most = CHARACTERS_PER_TOKEN * self.max_tokens
        if len(request.prompt) > most:
            raise InputError(
                "the prompt is too long", expected=f"at most {most:,} characters, {CHARACTERS_PER_TOKEN} a token",
                got=f"{len(request.prompt):,}",
            )  # fmt: skip
        sampling = self._model.sampling(request.temperature, request.top_k, request.top_p, request.seed)
        prompt = self._model.encode(request.prompt)
        tokens = self._model.max_tokens(request.tokens)
        if len(prompt) + tokens > self.max_tokens:
            raise InputError(
                "the request has too many tokens", expected=f"at most {self.max_tokens:,}, the prompt included",
                got=f"{len(prompt):,} + {tokens:,}",
            )  # fmt: skip
        return self._model.sample_text(prompt, request.tokens, sampling, SEED if request.seed is None else request.seed)

    def submit(self, texts: Sequence[Iterator[str]], is_canceled: Callable[[], bool]) -> Future[list[str]]:
        """Queue the pieces of texts from `read`; the future returns the texts, or raises `RequestError` 422.

        Once `is_canceled` returns True, the request ends before its next token. Raises `RequestError` 503 if
        `MAX_WAITING` others wait.
        """
        if self.waiting >= MAX_WAITING:
            raise RequestError(503, f"{MAX_WAITING} prompts are waiting: try again later")
        future = self._thread.submit(self._generate, texts, is_canceled)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    def close(self) -> None:
        """Generate the texts of all requests that wait, then end the thread."""
        self._thread.shutdown()

    def _generate(self, texts: Sequence[Iterator[str]], is_canceled: Callable[[], bool]) -> list[str]:
        self._net.is_canceled = is_canceled
        answers = []
        for number, pieces in enumerate(texts, 1):
            with _request_errors(_title(number, len(texts))):
                answers.append("".join(pieces))
        return answers


class _InterruptibleNet:
    """A net for the next token that shares its model with other threads, and stops when its request is canceled."""

    def __init__(self, net: NextTokenNet, lock: threading.Lock) -> None:
        self._net, self._lock = net, lock
        self.is_canceled: Callable[[], bool] = lambda: False

    def restart(self) -> None:
        """Forget all tokens."""
        self._net.restart()

    def make_room(self) -> Sequence[int]:
        """Return the tokens to read again before the next one."""
        return self._net.make_room()

    def logits_after(self, token: int) -> NDArray[Any]:
        """Read a token; return the logits (V,) of the one after it. Raises `CancelledError`."""
        if self.is_canceled():
            raise CancelledError
        with self._lock:
            return self._net.logits_after(token)

    def save_state(self) -> Any:
        """Return what the net remembers."""
        return self._net.save_state()

    def restore_state(self, state: Any) -> None:
        """Return to the tokens that had been read when `save_state` returned `state`."""
        self._net.restore_state(state)
