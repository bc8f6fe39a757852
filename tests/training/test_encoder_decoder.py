"""Texts of an encoder and a decoder: what they have learned, where they end, and nets that are something else."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.cli import main
from netspec.errors import InputError
from netspec.schema.specs.train import TrainSpec
from netspec.training.beam_search import beam_search
from netspec.training.encoder_decoder import EncoderDecoder, decoder_column
from netspec.training.generation import Sampling

LENGTH, TOKENS = 4, 6  # padding, start, end, and the letters a, b and c

TRAIN = """\
netspec: 1
net:
  netspec: 1
  inputs:
    source: {shape: [3], dtype: int32}
    previous: {shape: [4], dtype: int32}
    target: {shape: [4], dtype: int32}
  layers:
    - {type: Embedding, input_dim: 4, output_dim: 8, mask_zero: true, from: source}
    - {name: encoded, type: GRU, units: 24}
    - {name: repeated, type: RepeatVector, n: 4}
    - {name: written, type: Embedding, input_dim: 6, output_dim: 8, from: previous}
    - {type: Concatenate, axis: 2, from: [written, repeated]}
    - {type: GRU, units: 24, return_sequences: true}
    - {name: logits, type: Dense, units: 6}
  outputs: [logits]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, target], from_logits: true}]
data:
  train:
    source: csv
    path: pairs.csv
    header: true
    columns:
      source: {type: text, tokenizer: {type: characters, padding: true}, length: 3}
      target:
        type: text
        tokenizer: {type: characters, padding: true, start_end: true}
        length: 4
        decoder_input: previous
    batch_size: 20
    shuffle: true
solver: {type: Adam, learning_rate: 0.02}
train: {max_epochs: 25}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a net that has learned to reverse one to three letters."""
    folder = tmp_path_factory.mktemp("reversal")
    texts = ["".join(letters) for length in (1, 2, 3) for letters in product("abc", repeat=length)]
    rows = [f"{text},{text[::-1]}" for text in texts * 10]
    Random(1).shuffle(rows)
    (folder / "pairs.csv").write_text("\n".join(["source,target", *rows]) + "\n")
    (folder / "train.yaml").write_text(TRAIN)
    return netspec.train(folder / "train.yaml", run_dir=folder / "run").run_dir


def generator_of(run: Path) -> EncoderDecoder:
    model = netspec.load(run, device="reference")
    assert isinstance(model.training, TrainSpec)
    column = decoder_column(model.training)
    assert column == "target"
    return EncoderDecoder(model, model.training, column)


@pytest.mark.parametrize("text", ["a", "ab", "cab"])
def test_a_learned_text_is_written_up_to_its_end(run: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert netspec.generate(run, text, temperature=0) == text[::-1]
    assert netspec.generate(run, text, beams=3) == text[::-1]
    capsys.readouterr()
    assert main(["generate", str(run), "--prompt", text, "--temperature", "0"]) == 0
    assert capsys.readouterr().out == f"{text[::-1]}\n"


def test_a_text_can_be_cut_short(run: Path) -> None:
    assert netspec.generate(run, "cab", tokens=2, temperature=0) == "ba"
    assert netspec.generate(run, "cab", tokens=2, beams=2) == "ba"


def test_tokens_are_those_of_the_net_with_the_correct_text_before_them(run: Path) -> None:
    model = netspec.load(run, device="reference")
    logits = model.predict([{"source": "abc", "target": "cba"}])["logits"][0]
    generator = generator_of(run)
    computed = [generator.read(generator.encode("abc"))]
    computed += [generator.logits_after(token) for token in generator.tokenizer.encode("cba").tolist()]
    np.testing.assert_array_equal(computed, logits)


def test_beam_search_finds_the_most_probable_text_that_ends(run: Path) -> None:
    generator = generator_of(run)
    random = np.random.default_rng(3)
    parameters = generator._window._model.parameters
    for name in parameters:  # a net that is not sure of anything
        parameters[name] = random.normal(size=parameters[name].shape) * 0.7
    prompt, end = generator.encode("ab"), generator.end
    assert end is not None

    @cache
    def scores_after(tokens: tuple[int, ...]) -> Any:
        logits = generator.read(prompt)
        for token in tokens:
            logits = generator.logits_after(token)
        logits = logits.astype(np.float64)
        return logits - np.log(np.exp(logits).sum())

    def score(tokens: tuple[int, ...]) -> float:
        return sum(float(scores_after(tokens[:step])[token]) for step, token in enumerate(tokens))

    others = [token for token in range(TOKENS) if token != end]
    ended = [(*tokens, end) for length in range(LENGTH) for tokens in product(others, repeat=length)]
    texts = {tokens: score(tokens) for tokens in [*ended, *product(others, repeat=LENGTH)]}
    best = max(texts, key=lambda tokens: texts[tokens])
    found_score, found = beam_search(generator, prompt, 10, TOKENS**LENGTH)  # keeps everything
    assert found == [token for token in best if token != end]
    assert found_score == pytest.approx(texts[best], rel=1e-4)  # the same sums in float32
    greedy = list(generator.tokens(prompt, Sampling(temperature=0), 1))
    assert beam_search(generator, prompt, 10, 1)[1] == greedy


def test_prompts_are_read_as_in_the_training(run: Path) -> None:
    with pytest.raises(InputError, match="the character 'x' is not in the vocabulary"):
        netspec.generate(run, "abx")
    with pytest.raises(InputError, match="the prompt is empty"):
        netspec.generate(run, "")
    generator = generator_of(run)
    assert generator.encode("b") == [2, 0, 0]
    assert generator.encode("abca") == generator.encode("abc")  # cut as in the training


def test_nets_that_read_more_than_a_text_are_refused(run: Path) -> None:
    model = netspec.load(run, device="reference")
    assert model.training is not None
    data = model.training.data.train.model_copy(update={"inputs": {"source": "other"}})
    training = model.training.model_copy(update={"data": model.training.data.model_copy(update={"train": data})})
    with pytest.raises(InputError, match="the net does not turn a text into another one") as error:
        EncoderDecoder(model, training, "target")
    assert "got: `previous`, `source`" in error.value.render()
