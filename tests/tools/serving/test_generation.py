"""Prompts at `/predict` of a language model: texts, mistakes, limits, and requests at the same time."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.tools.serving.application import INLINE_BYTES, ServingLimits
from netspec.tools.serving.generation import (
    MAX_PROMPTS,
    Generation,
    PromptRequest,
    PromptTexts,
    _InterruptibleNet,
    parse_prompts,
)
from netspec.training.generation.language_model import LanguageModelGenerator, Sampling
from tests.tools.serving.conftest import Client, Serve

SETTINGS = {"tokens": 200, "temperature": 1.0, "top_k": None, "top_p": None, "seed": 1}


@pytest.fixture
def client(serve: Serve, language_run: Path) -> Client:
    return serve(language_run, max_batch=2, max_tokens=300)


def generated(run: Path, prompt: str, **settings: Any) -> str:
    return netspec.generate(run, prompt, device="reference", **settings)


@pytest.mark.parametrize(
    ("body", "kind", "settings"),
    [
        (b"ab", "text/plain", {}),
        (b"ab", "application/x-www-form-urlencoded", {}),
        (b'{"prompt": "ab", "tokens": 20, "temperature": 0}', "application/json", {"tokens": 20, "temperature": 0}),
        (b'{"prompt": "ab", "temperature": 5, "seed": 7}', "application/x-www-form-urlencoded",
         {"temperature": 5, "seed": 7}),
        (b' { "seed": 7, "prompt": "ab"}', "application/x-www-form-urlencoded", {"seed": 7}),
        (b'{"prompt": "ab", "top_k": 2, "top_p": 0.9, "seed": null}', "", {"top_k": 2, "top_p": 0.9}),
    ],
)  # fmt: skip
def test_a_prompt_has_the_text_of_netspec_generate(
    client: Client, language_run: Path, body: bytes, kind: str, settings: dict[str, Any]
) -> None:
    status, answer = client.post("/predict", body, **{"Content-Type": kind})
    assert (status, answer) == (
        200,
        {"model": "letters", "answers": [{"text": generated(language_run, "ab", **settings)}]},
    )


def test_a_net_with_encoder_and_decoder_answers_prompts(serve: Serve) -> None:
    client = serve("seq2seq", max_batch=1)
    description = client.get("/predict")[1]
    assert (description["kind"], description["columns"]) == ("prompt", [])
    assert description["settings"] == {**SETTINGS, "tokens": 11, "temperature": 0.0}
    answer = client.post("/predict", {"prompt": "3 May 2019"})[1]
    assert answer == {"model": "seq2seq", "answers": [{"text": "2019-05-03"}]}
    status, answer = client.post("/predict", {"prompt": ""})
    assert (status, answer["error"]) == (422, "the prompt is empty; expected a source text")
    answer = client.post("/predict", [{"source": "3 May 2019"}, {"source": "3 Mäy 2019!"}])[1]
    assert answer["notes"] == ["prompt 2: the prompt has 2 characters outside the vocabulary: 'ä', '!'"]
    assert (description["source"], description["max_source_tokens"]) == ("source", 30)
    rows = [{"source": "3 May 2019"}, {"source": "3 May 2019", "tokens": 4}, {"prompt": "20.6.2033"}]
    answer = client.post("/predict", rows)[1]
    assert answer["answers"] == [{"text": "2019-05-03"}, {"text": "2019"}, {"text": "2033-06-20"}]
    assert client.post("/predict", rows[0])[1]["answers"] == [{"text": "2019-05-03"}]
    status, error = client.error("/predict", {"text": "3 May 2019"})
    assert (status, error) == (
        400, 'expected an object with a prompt, such as {"source": "To be", "tokens": 11}, or a list of these'
    )  # fmt: skip
    status, error = client.error("/predict", {"source": 3, "temprature": 0})
    unknown = (
        "unknown field `temprature`; expected one of seed, source, temperature, tokens, top_k, top_p (did you mean"
    )
    assert (status, error) == (400, f"`source` must be a text, got 3\n{unknown} `temperature`?)")
    status, error = client.error("/predict", {"source": "3 May 2019", "prompt": "4 May 2019"})
    assert (status, "unknown field `source`" in error) == (400, True)
    # 10 characters and at most 11 tokens
    assert serve("seq2seq", max_batch=1, max_tokens=21).post("/predict", {"prompt": "3 May 2019"})[0] == 200


def test_the_description_has_the_settings(client: Client) -> None:
    assert client.get("/predict")[1] == {
        "model": "letters", "kind": "prompt", "columns": [], "classes": {}, "settings": SETTINGS, "max_tokens": 300,
        "example": {"prompt": "a", "tokens": 100},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "messages"),
    [
        ({"text": "ab"}, 400, ["expected an object with a prompt, such as "]),
        (["ab"], 400, ["expected an object with a prompt, such as "]),
        ({"prompt": None}, 400, ["`prompt` must be a text, got null"]),
        ({"prompt": "ab", "token": 3, "seed": 0.5, "temperature": "größer"}, 400,
         ["unknown field `token`; expected one of prompt, seed, temperature, tokens, top_k, top_p (did you mean `to",
          "`seed` must be a whole number, got 0.5", '`temperature` must be a number, got "größer"']),
        ({"prompt": "ab", "tokens": True}, 400, ["`tokens` must be a whole number, got true"]),
        ({"prompt": "ab", "temperature": 10**400}, 400,
         ["`temperature` must be at most 9223372036854775807, got 1000"]),
        ({"prompt": "ab", "tokens": 2**63}, 400,
         ["`tokens` must be at most 9223372036854775807, got 9223372036854775808"]),
        ({"prompt": "abx"}, 422, ["the prompt cannot be encoded: the character 'x' is not in the vocabulary"]),
        ({"prompt": "a" * 20_000}, 422,
         ["the prompt is too long; expected at most 19,200 characters, 64 a token; got 20,000"]),
        ({"prompt": ""}, 422, ["the prompt is empty"]),
        ({"prompt": "ab", "tokens": 0}, 422, ["the number of tokens must be 1 or more; got 0"]),
        ({"prompt": "ab", "tokens": 299}, 422,
         ["the request has too many tokens; expected at most 300, the prompt included; got 2 + 299"]),
        ({"prompt": "ab", "temperature": -1}, 422, ["the temperature is out of range; expected 0 or more; got -1"]),
        ({"prompt": "ab", "seed": -1}, 422, ["the seed must be 0 or more; got -1"]),
    ],
)  # fmt: skip
def test_a_wrong_prompt(client: Client, body: Any, status: int, messages: list[str]) -> None:
    actual, error = client.error("/predict", body)
    assert actual == status
    assert [message for message in messages if message not in error] == [], error


def test_several_prompts(client: Client, language_run: Path) -> None:
    prompts = [{"prompt": "ab", "tokens": 9}, {"prompt": "b", "tokens": 5, "seed": 3}]
    status, answer = client.post("/predict", prompts)
    texts = [generated(language_run, "ab", tokens=9), generated(language_run, "b", tokens=5, seed=3)]
    assert (status, answer["answers"]) == (200, [{"text": text} for text in texts])
    status, error = client.error("/predict", [{"prompt": "ab"}, {"prompt": "ab", "tokens": "many"}])
    assert (status, error) == (400, 'prompt 2: `tokens` must be a whole number, got "many"')
    for prompt, problem in {"abx": "the prompt cannot be encoded", "": "the prompt is empty"}.items():
        status, error = client.error("/predict", [{"prompt": "ab"}, {"prompt": prompt}])
        assert (status, error.partition(problem)[:2]) == (422, ("prompt 2: ", problem))
    status, error = client.error("/predict", [{"prompt": "ab"}] * (MAX_PROMPTS + 1))
    assert (status, error) == (400, "a request may have at most 1,000 prompts, got 1,001")


def test_errors_stay_short(client: Client) -> None:
    status, error = client.error(
        "/predict", {"prompt": "ab", **dict.fromkeys(f"{key}{'k' * 999}" for key in range(99))}
    )
    assert (status, len(error.splitlines()), len(error) < 2000) == (400, 10, True)
    status, error = client.error("/predict", {"prompt": "ab" * 999 + "x"})
    assert (status, len(error) < 300) == (422, True)


def test_a_form_and_a_number_of_classes_are_refused(client: Client) -> None:
    status, error = client.error("/predict", b"--x", **{"Content-Type": "multipart/form-data; boundary=x"})
    assert (status, "--data-binary" in error) == (415, True)
    status, error = client.error("/predict?top=2", {"prompt": "ab"})
    assert (status, error) == (400, "`top` is a number of classes, and the answer to a prompt has none")


def test_settings_in_the_address_are_refused(client: Client) -> None:
    status, error = client.error("/predict?temperature=1", {"prompt": "ab"})
    expected = '/predict has no parameter `temperature`: send settings in the JSON body, such as {"prompt": "a", '
    assert (status, error) == (400, expected + '"tokens": 100}')


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
def test_a_plain_prompt_may_begin_with_a_brace(kind: str) -> None:
    assert parse_prompts(b"{ int x;", kind, "") == [PromptRequest("{ int x;")]


def test_a_long_body_is_read_outside_of_the_event_loop(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    read = Generation.read

    def recorded(*arguments: Any) -> PromptTexts:
        threads.append(threading.current_thread().name)
        return read(*arguments)

    monkeypatch.setattr(Generation, "read", recorded)
    assert client.error("/predict", b"a" * (INLINE_BYTES + 1))[0] == 422
    assert [name.startswith("netspec-requests") for name in threads] == [True]


def test_a_prompt_with_too_many_tokens_does_not_wait_for_others(client: Client) -> None:
    generation, release = client.service.generation, threading.Event()
    assert generation is not None
    running = generation.submit([(str(release.wait(20)) for _ in range(1))], lambda: False)
    try:
        assert client.error("/predict", {"prompt": "ab", "tokens": 299})[0] == 422
        assert not running.done()
    finally:
        release.set()


def test_more_than_eight_waiting_prompts_have_status_503(client: Client) -> None:
    generation, started, release = client.service.generation, threading.Event(), threading.Event()
    assert generation is not None

    def text() -> Iterator[str]:
        started.set()
        yield str(release.wait(20))

    try:
        futures = [generation.submit([text()], lambda: False)]
        assert started.wait(10)
        futures += [generation.submit([iter("ab")], lambda: False) for _ in range(8)]
        assert client.error("/predict", {"prompt": "ab"}) == (503, "8 prompts are waiting: try again later")
    finally:
        release.set()
    assert [future.result(10) for future in futures] == [["True"]] + [["ab"]] * 8


def test_a_text_ends_when_its_client_goes_away(serve: Serve, language_run: Path) -> None:
    client = serve(language_run, max_batch=1, max_tokens=10**9)
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)
    connection.request("POST", "/predict", json.dumps({"prompt": "ab", "tokens": 10**8}))
    generation = client.service.generation
    assert generation is not None
    deadline = time.monotonic() + 10
    while not generation._unfinished:
        assert time.monotonic() < deadline
    connection.close()
    assert client.post("/predict", {"prompt": "ab", "tokens": 4})[0] == 200  # long before the timeout of 30 s
    assert time.monotonic() < deadline
    assert 'route="POST /predict",status="499"' in client.request("GET", "/metrics")[1].decode()


def test_a_text_is_canceled_while_half_a_window_is_read_again() -> None:
    class FullNet:
        """A net whose sequence is full before each token."""

        read: ClassVar[list[int]] = []

        def restart(self) -> None: ...

        def save_state(self) -> None: ...

        def restore_state(self, state: None) -> None: ...

        def make_room(self) -> list[int]:
            return [7, 8, 9]

        def logits_after(self, token: int) -> Any:
            assert lock.locked()
            self.read.append(token)
            return np.zeros(10)

    lock = threading.Lock()
    net = _InterruptibleNet(FullNet(), lock)
    net.is_canceled = lambda: len(FullNet.read) == 2
    generator = object.__new__(LanguageModelGenerator)
    generator.net = net
    with pytest.raises(CancelledError):
        next(generator.tokens([1], Sampling(), 1))
    assert FullNet.read == [7, 8]
    assert not lock.locked()


def test_a_model_of_text_that_takes_no_prompts_gives_the_reason(
    language_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise InputError("the net does not read a window of tokens", got="no input")

    monkeypatch.setattr("netspec.tools.serving.generation.TextModel", refuse)
    remarks: list[str] = []

    class Ready(Exception): ...

    def ready(name: str, url: str) -> None:
        raise Ready

    with pytest.raises(Ready):
        netspec.serve(language_run, port=0, device="reference", max_batch=1, ready=ready, on_remark=remarks.append)
    assert remarks == ["the model takes arrays, not prompts: the net does not read a window of tokens; got no input"]


def test_prompts_and_tensors_at_the_same_time_get_their_own_answers(client: Client, language_run: Path) -> None:
    windows = np.array([[0, 1, 2, 3, 0, 1, 2, 3]], np.int32)
    tensor = {"name": "text", "shape": [1, 8], "datatype": "INT32", "data": windows.ravel().tolist()}
    logits = netspec.load(language_run, device="reference").predict({"text": windows})["logits"]
    together = threading.Barrier(8)

    def ask(number: int) -> Any:
        together.wait(10)
        if number % 2:
            outputs = client.post("/v2/models/letters/infer", {"inputs": [tensor]})[1]["outputs"]
            return np.array(outputs[0]["data"]).reshape(logits.shape)
        request = {"prompt": "ab", "tokens": 50, "temperature": 5, "seed": number}
        return client.post("/predict", request)[1]["answers"][0]["text"]

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(8)))
    for number, actual in enumerate(answers):
        if number % 2:
            np.testing.assert_allclose(actual, logits, rtol=1e-5, atol=1e-6)
        else:
            assert actual == generated(language_run, "ab", tokens=50, temperature=5, seed=number)


def test_a_text_that_takes_too_long_ends_and_the_next_is_generated(serve: Serve, language_run: Path) -> None:
    client = serve(language_run, ServingLimits(timeout=0.5), max_batch=1, max_tokens=10**9)
    status, error = client.error("/predict", {"prompt": "ab", "tokens": 10**8})
    assert (status, error) == (504, "there was no answer within 0.5 s")
    deadline = time.monotonic() + 10
    while (status := client.post("/predict", {"prompt": "ab", "tokens": 4})[0]) != 200:
        assert time.monotonic() < deadline
    generation = client.service.generation
    assert generation is not None
    assert generation.waiting == 0


def test_waiting_prompts_are_counted_and_canceled_ones_are_not_generated(serve: Serve, language_run: Path) -> None:
    client = serve(language_run, ServingLimits(timeout=1), max_batch=1, max_tokens=10**9)
    request = json.dumps({"prompt": "ab", "tokens": 10**8}).encode()
    with ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(client.error, "/predict", request) for _ in range(3)]
        deadline = time.monotonic() + 10
        while "netspec_requests_waiting 2\n" not in client.request("GET", "/metrics")[1].decode():
            assert time.monotonic() < deadline
    assert [answer.result()[0] for answer in answers] == [504] * 3
