"""Texts from encoder-decoder nets: learned texts, where they end, and nets of other kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml

import netspec
from netspec.cli import main
from netspec.errors import InputError
from netspec.schema.specs.train import TrainSpec
from netspec.tools.inference.generate import TextModel
from netspec.training.generation.beam_search import beam_search
from netspec.training.generation.encoder_decoder import EncoderDecoderGenerator, decoder_columns
from netspec.training.generation.language_model import Sampling

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


def generator_of(run: Path) -> EncoderDecoderGenerator:
    model = netspec.load(run, device="reference")
    assert isinstance(model.training, TrainSpec)
    assert [*decoder_columns(model.training)] == ["target"]
    return EncoderDecoderGenerator(model, model.training)


@pytest.mark.parametrize("text", ["a", "ab", "cab"])
def test_a_learned_text_is_written_up_to_its_end(run: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert netspec.generate(run, text) == text[::-1]
    assert netspec.generate(run, text, beams=3) == text[::-1]
    capsys.readouterr()
    assert main(["generate", str(run), "--prompt", text]) == 0
    assert capsys.readouterr().out == f"{text[::-1]}\n"


def test_a_text_can_be_cut_short(run: Path) -> None:
    assert netspec.generate(run, "cab", tokens=2) == "ba"
    assert netspec.generate(run, "cab", tokens=2, beams=2) == "ba"


def test_the_most_probable_tokens_are_taken_unless_an_option_asks_to_draw(run: Path) -> None:
    drawn = {netspec.generate(run, "cab", temperature=9.0, seed=seed) for seed in range(10)}
    assert len(drawn) > 1
    model = TextModel(netspec.load(run))
    assert model.sampling(None, None, None, None) == Sampling(0.0)
    assert model.sampling(None, None, None, 7) == Sampling(1.0)
    assert model.sampling(None, 2, None, None) == Sampling(1.0, 2)
    assert (model.max_tokens(None), model.max_tokens(300), model.max_tokens(2)) == (LENGTH, LENGTH, 2)


def test_predict_writes_the_text_of_each_row(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["".join(letters) for length in (1, 2, 3) for letters in product("abc", repeat=length)]
    file = tmp_path / "new.csv"
    file.write_text("\n".join(["source", *texts]) + "\n")
    answers = netspec.predict(run, file, batch_size=7).answers
    assert answers["text"] == [text[::-1] for text in texts]
    assert answers["text"] == [netspec.generate(run, text) for text in texts]
    assert all(0.5 < probability <= 1 for probability in answers["probability"])
    assert netspec.predict(run, [{"source": "cab"}]).answers["text"] == ["bac"]
    # A table to predict may contain targets, which are ignored.
    with_targets = netspec.predict(run, [{"source": "cab", "target": "aaa"}])
    assert with_targets.answers["text"] == ["bac"]
    capsys.readouterr()
    assert main(["predict", str(run), "--input", str(file), "--keep", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]).items() >= {"source": "ccc", "text": "ccc"}.items()


def test_predict_notes_source_texts_with_unknown_characters(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("source,target\n" + "abc,cba\n" * 20)
    train = TRAIN.replace("padding: true}, length: 3", "padding: true, unknown: true}, length: 3")
    (tmp_path / "train.yaml").write_text(train.replace("input_dim: 4", "input_dim: 5").replace("25", "1"))
    run = netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference").run_dir
    rows = [{"source": text} for text in ("ab", "x", "xa", "abcx", "bxx")]  # the fourth is cut after "abc"
    assert netspec.predict(run, rows, batch_size=2, device="reference").unknown == (
        "1 text has no token of the vocabulary: row 2",
        "2 texts have tokens outside the vocabulary: row 3, row 5",
    )
    assert netspec.predict(run, rows[:1], device="reference").unknown == ()


def test_logits_that_are_not_finite_are_refused(run: Path) -> None:
    model = netspec.load(run)
    model.parameters["logits/bias"] = np.full(TOKENS, np.nan)
    text_model = TextModel(model)
    with pytest.raises(InputError, match="the net computes logits that are not finite"):
        list(text_model.sample_text([1, 2], None, Sampling(0.0), 1))


def test_the_probability_of_a_text_is_that_of_its_tokens_and_its_end(run: Path) -> None:
    prediction = netspec.predict(run, [{"source": "ab"}], device="reference")
    score, tokens = beam_search(generator_of(run), [1, 2], LENGTH, 1)
    assert len(tokens) == 2
    assert prediction.answers["probability"] == [pytest.approx(np.exp(score), rel=1e-5)]


def test_tokens_are_those_of_the_net_with_the_correct_text_before_them(run: Path) -> None:
    model = netspec.load(run, device="reference")
    generator = generator_of(run)
    written = [generator.tokenizer.start, *generator.tokenizer.encode("cba").tolist()]
    logits = model.predict({"source": np.array([[1, 2, 3]]), "previous": np.array([written])})["logits"][0]
    computed = [generator.read([1, 2, 3])]
    computed += [generator.logits_after(token) for token in generator.tokenizer.encode("cba").tolist()]
    possible = [
        token for token in range(TOKENS) if token not in (generator.tokenizer.padding, generator.tokenizer.start)
    ]
    np.testing.assert_array_equal(np.array(computed)[:, possible], logits[:, possible])
    assert (np.array(computed)[:, [0, 1]] == -np.inf).all()  # no text has padding or a start token inside


def test_beam_search_finds_the_most_probable_text_that_ends(run: Path) -> None:
    generator = generator_of(run)
    random = np.random.default_rng(3)
    parameters = generator._window._model.parameters
    for name in parameters:  # with random weights, the net is unsure
        parameters[name] = random.normal(size=parameters[name].shape) * 0.7
    prompt, end = [1, 2], generator.end
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

    others = [3, 4, 5]
    ended = [(*tokens, end) for length in range(LENGTH) for tokens in product(others, repeat=length)]
    texts = {tokens: score(tokens) for tokens in [*ended, *product(others, repeat=LENGTH)]}
    best = max(texts, key=lambda tokens: texts[tokens])
    assert best[-1] == end
    assert len(best) < LENGTH
    found_score, found = beam_search(generator, prompt, 10, TOKENS**LENGTH)  # with so many beams, nothing is dropped
    assert found == [token for token in best if token != end]
    assert found_score == pytest.approx(texts[best], rel=1e-4)  # the same sums in float32
    greedy = list(generator.tokens(prompt, Sampling(temperature=0), 1))
    assert beam_search(generator, prompt, 10, 1)[1] == greedy


def test_prompts_that_the_encoder_cannot_read_are_refused(run: Path) -> None:
    for prompt, message in [
        ("abx", "the prompt cannot be encoded: the character 'x' is not in the vocabulary"),
        (" ", "the prompt is empty"),
        ("abca", "the prompt is too long"),
    ]:
        with pytest.raises(InputError, match=message):
            netspec.generate(run, prompt)
    with pytest.raises(InputError, match="the vocabulary has no token of the prompt"):
        netspec.generate("seq2seq", "☃")


def variant(run: Path, change: Callable[[dict[str, Any]], object]) -> netspec.Model:
    """A model with new weights, of the training file with a change."""
    spec = yaml.safe_load((run.parent / "train.yaml").read_text())
    change(spec)
    spec["data"]["train"]["path"] = str(run.parent / "pairs.csv")
    return netspec.load(spec, device="reference")


def swap_source(spec: dict[str, Any]) -> None:
    spec["data"]["train"]["inputs"] = {"source": "target"}


def read_later_tokens(spec: dict[str, Any]) -> None:
    layer = spec["net"]["layers"][5]
    spec["net"]["layers"][5] = {"type": "Bidirectional", "layer": layer}


def learn_probabilities(spec: dict[str, Any]) -> None:
    spec["net"]["losses"][0]["from_logits"] = False


def write_twice(spec: dict[str, Any]) -> None:
    columns = spec["data"]["train"]["columns"]
    columns["other"] = {**columns["target"], "decoder_input": "others"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap_source, "only nets that read one source text and `previous` generate texts"),
        (read_later_tokens, "the decoder reads later tokens of `previous`"),
        (learn_probabilities, "the loss of `logits` reads probabilities"),
        (write_twice, "the training data has several columns with `decoder_input`"),
    ],
)
def test_other_nets_are_refused(run: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    model = variant(run, change)
    assert model.training is not None
    with pytest.raises(InputError, match=message):
        EncoderDecoderGenerator(model, model.training)


def test_the_target_may_be_the_label(run: Path) -> None:
    model = variant(run, lambda spec: None)
    rows = [{"source": "abc", "target": "cba"}]
    expected = model.predict(rows)["logits"]

    def label_the_target(spec: dict[str, Any]) -> None:
        spec["data"]["train"] |= {"label": "target", "inputs": {"target": "label"}}

    labeled = variant(run, label_the_target)
    np.testing.assert_array_equal(labeled.predict(rows)["logits"], expected)
    assert isinstance(labeled.training, TrainSpec)
    assert EncoderDecoderGenerator(labeled, labeled.training).max_tokens == LENGTH


def test_weights_of_other_columns_are_refused(run: Path, tmp_path: Path) -> None:
    text = TRAIN.replace("      source: {type: text,", "      from: {type: text, field: source,")
    (tmp_path / "train.yaml").write_text(text)
    with pytest.raises(InputError, match="the weights have no vocabulary of the column `from`"):
        netspec.generate(tmp_path / "train.yaml", "ab", weights=run / "weights.h5")
