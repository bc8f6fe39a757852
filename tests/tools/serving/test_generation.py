"""Prompts at `/predict` of a language model: texts, mistakes, limits, and requests at the same time."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.tools.serving.application import ServingLimits
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


def test_the_description_has_the_settings(client: Client) -> None:
    assert client.get("/predict")[1] == {
        "model": "letters", "kind": "prompt", "columns": [], "classes": {}, "settings": SETTINGS, "max_tokens": 300,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "messages"),
    [
        ({"text": "ab"}, 400, ["expected an object with a prompt, such as "]),
        (["ab"], 400, ["expected an object with a prompt, such as "]),
        ({"prompt": None}, 400, ["`prompt` must be a text, got null"]),
        ({"prompt": "ab", "token": 3, "seed": 0.5, "temperature": "hot"}, 400,
         ["unknown field `token`; expected one of prompt, seed, temperature, tokens, top_k, top_p (did you mean `to",
          "`seed` must be a whole number, got 0.5", '`temperature` must be a number, got "hot"']),
        ({"prompt": "ab", "tokens": True}, 400, ["`tokens` must be a whole number, got true"]),
        ({"prompt": "ab", "temperature": 10**400}, 400, ["`temperature` must be a number, got 1000"]),
        ({"prompt": "abx"}, 422, ["the prompt cannot be encoded: the character 'x' is not in the vocabulary"]),
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
