"""Generating text: single steps agree with full windows, and tokens are drawn as requested."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import cache
from io import BytesIO, TextIOWrapper
from itertools import islice, product
from json import loads
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import yaml

import netspec
from netspec.cli import main
from netspec.errors import InputError
from netspec.layers.base import LayerSpec
from netspec.schema.specs.kinds import LAYERS
from netspec.tools.inference.generate import TextModel, decoded_pieces
from netspec.training.generation.beam_search import beam_search
from netspec.training.generation.language_model import LanguageModelGenerator, Sampling, TokenWindow
from netspec.training.inference.model import Model

STEPS, TOKENS = 6, 7


def language_net(*layers: dict[str, Any], steps: int = STEPS) -> dict[str, Any]:
    """A net for the next of `TOKENS` tokens, with layers between the embedding and the logits."""
    return {
        "netspec": 1,
        "inputs": {"text": {"shape": [steps], "dtype": "int32"}},
        "layers": [
            {"type": "Embedding", "name": "embedding", "input_dim": TOKENS, "output_dim": 4},
            *layers,
            {"type": "Dense", "units": TOKENS, "name": "logits"},
        ],
    }


CAUSAL_CONVOLUTION: list[dict[str, Any]] = [
    {"type": "Permute", "dims": [2, 1]},
    {"type": "Conv1D", "filters": 4, "kernel_size": 3, "padding": "causal"},
    {"type": "Permute", "dims": [2, 1]},
]


def layers_with_steps() -> Iterator[Any]:
    """Every sample of a layer that computes single steps of a sequence (N, T, C)."""
    for name in sorted(LAYERS.names()):
        cls = LAYERS[name]
        assert issubclass(cls, LayerSpec)
        if cls.step_states is LayerSpec.step_states:
            continue
        for number, sample in enumerate(cls.samples):
            layer = LAYERS.parse({"type": name, **sample.fields})
            assert isinstance(layer, LayerSpec)
            if layer.step_states(STEPS) is not None and not sample.masks:
                yield pytest.param({"type": name, **sample.fields}, id=f"{name}-{number}")


@pytest.mark.parametrize("fields", list(layers_with_steps()))
def test_steps_of_every_layer_agree_with_the_window(fields: dict[str, Any]) -> None:
    fields = {**fields, **({"sequence_length": STEPS} if "sequence_length" in fields else {})}
    if "return_sequences" in LAYERS[fields["type"]].model_fields:
        fields |= {"return_sequences": True, "return_state": False}
    model = netspec.load(language_net({**fields, "name": "tested"}), device="reference", precision="float64")
    for name in model.parameters:  # biases and others start as zeros, which would hide mistakes
        model.parameters[name] = np.random.default_rng(1).normal(size=model.parameters[name].shape)
    generator = LanguageModelGenerator(model)
    assert generator.is_incremental


def test_layers_without_steps_fall_back_to_windows() -> None:
    model = netspec.load(language_net(*CAUSAL_CONVOLUTION), device="reference")
    assert not LanguageModelGenerator(model).is_incremental


@pytest.mark.parametrize(
    "layer",
    [
        {"type": "Bidirectional", "layer": {"type": "LSTM", "units": 2, "return_sequences": True}},
        {"type": "MultiHeadAttention", "num_heads": 1, "key_dim": 2},
    ],
    ids=lambda layer: layer["type"],
)
def test_nets_that_read_later_tokens_are_refused(layer: dict[str, Any]) -> None:
    model = netspec.load(language_net(layer), device="reference")
    with pytest.raises(InputError, match="the net reads later tokens of `text`"):
        LanguageModelGenerator(model)


def test_sequences_longer_than_the_window_continue() -> None:
    attention = {"type": "MultiHeadAttention", "num_heads": 1, "key_dim": 2, "use_causal_mask": True, "name": "a"}
    model = netspec.load(
        language_net({"type": "LSTM", "units": 3, "return_sequences": True}, attention), device="reference"
    )
    generator = LanguageModelGenerator(model)
    tokens = [1, 2, 3, 4, 5, 6]
    for token in tokens:
        generator.logits_after(token)
    window = TokenWindow(model, generator.input, generator.steps, generator.output)
    expected = window.logits([*tokens[STEPS // 2 :], 0])[STEPS // 2]
    # The same sums in another order, in float32.
    np.testing.assert_allclose(generator.logits_after(0), expected, rtol=1e-4, atol=1e-5)
    assert len(list(islice(generator.tokens([1], Sampling(), 1), 5 * STEPS))) == 5 * STEPS


def test_recurrent_nets_remember_more_than_a_window() -> None:
    model = netspec.load(language_net({"type": "GRU", "units": 3, "return_sequences": True}), device="reference")
    longer = netspec.load(
        language_net({"type": "GRU", "units": 3, "return_sequences": True}, steps=20), device="reference"
    )
    for name in model.parameters:
        longer.parameters[name] = model.parameters[name]
    tokens = np.random.default_rng(0).integers(0, TOKENS, 20).tolist()
    net = LanguageModelGenerator(model).net
    logits = [net.logits_after(token) for token in tokens]
    expected = longer.predict({"text": np.array([tokens], np.int32)})["logits"][0]
    # The same sums in another order, in float32.
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "layers",
    [
        [{"type": "GRU", "units": 3, "return_sequences": True}],
        [{"type": "MultiHeadAttention", "num_heads": 1, "key_dim": 2, "use_causal_mask": True}],
        CAUSAL_CONVOLUTION,
    ],
    ids=["states", "keys and values", "windows"],
)
def test_beam_search_finds_the_most_probable_tokens(layers: list[dict[str, Any]]) -> None:
    model = netspec.load(language_net(*layers), device="reference")
    for name in model.parameters:  # initial logits are nearly equal
        model.parameters[name] = np.random.default_rng(3).normal(size=model.parameters[name].shape) * 1.5
    generator = LanguageModelGenerator(model)
    prompt, length = [1, 4], 3
    window = TokenWindow(model, generator.input, generator.steps, generator.output)

    @cache
    def scores_after(tokens: tuple[int, ...]) -> Any:
        logits = window.logits([*prompt, *tokens])[len(prompt) + len(tokens) - 1].astype(np.float64)
        return logits - np.log(np.exp(logits).sum())

    scores = {
        tokens: sum(float(scores_after(tokens[:step])[tokens[step]]) for step in range(length))
        for tokens in product(range(TOKENS), repeat=length)
    }
    best = max(scores, key=lambda tokens: scores[tokens])
    # With so many beams, all sequences of two tokens are kept.
    score, found = beam_search(generator, prompt, length, TOKENS**2)
    assert tuple(found) == best
    assert score == pytest.approx(scores[best], rel=1e-4)
    greedy = list(islice(generator.tokens(prompt, Sampling(temperature=0), 1), length))
    assert beam_search(generator, prompt, length, 1)[1] == greedy
    assert beam_search(generator, prompt, length, 3)[0] >= scores[tuple(greedy)] - 1e-4


def test_a_prompt_keeps_no_logits_but_the_last() -> None:
    generator = LanguageModelGenerator(netspec.load(language_net(), device="reference"))
    logits_after, references = generator.net.logits_after, list[weakref.ref[Any]]()

    def counted_logits(token: int) -> Any:
        assert sum(reference() is not None for reference in references) <= 1
        logits = logits_after(token)
        references.append(weakref.ref(logits))
        return logits

    generator.net.logits_after = counted_logits  # type: ignore[method-assign]
    generator.read([1, 2, 3, 4, 5])
    assert len(references) == 5


@pytest.mark.parametrize("incremental", [False, True])
def test_a_saved_state_stays_as_it_is(incremental: bool) -> None:
    layers = [{"type": "LSTM", "units": 3, "return_sequences": True}] if incremental else CAUSAL_CONVOLUTION
    generator = LanguageModelGenerator(netspec.load(language_net(*layers), device="reference"))
    assert generator.is_incremental == incremental
    generator.read([1, 2])
    state = generator.net.save_state()
    logits = generator.logits_after(3)
    for _ in range(2):  # restoring does not change it either
        generator.logits_after(4)
        generator.net.restore_state(state)
        np.testing.assert_array_equal(generator.logits_after(3), logits)


def test_tokens_are_drawn_by_their_probabilities() -> None:
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    random = np.random.Generator(np.random.Philox(1))
    drawn = np.bincount([Sampling().draw(logits, random) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(drawn, [0.5, 0.25, 0.125, 0.125], atol=0.03)  # 4 standard deviations of 4,000 draws
    assert {Sampling(temperature=0).draw(logits, random) for _ in range(20)} == {0}
    assert {Sampling(top_k=2).draw(logits, random) for _ in range(200)} == {0, 1}
    assert {Sampling(top_p=0.7).draw(logits, random) for _ in range(200)} == {0, 1}
    assert {Sampling(top_p=0.4).draw(logits, random) for _ in range(50)} == {0}
    assert {Sampling(temperature=0.01).draw(logits, random) for _ in range(50)} == {0}
    assert {Sampling(top_p=1.0).draw(logits, random) for _ in range(400)} == {0, 1, 2, 3}


@pytest.mark.parametrize("wrong", [{"temperature": -0.1}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is out of range"):
        Sampling(**wrong)


def test_nets_of_something_else_are_refused() -> None:
    image = {"netspec": 1, "inputs": {"image": {"shape": [4]}}, "layers": [{"type": "Dense", "units": 2}]}
    with pytest.raises(InputError, match="does not read a window of tokens"):
        LanguageModelGenerator(netspec.load(image, device="reference"))
    last = language_net({"type": "LSTM", "units": 3})
    with pytest.raises(InputError, match="the net is not a language model"):
        LanguageModelGenerator(netspec.load(last, device="reference"))


TRAIN = """\
netspec: 1
net:
  netspec: 1
  inputs: {text: {shape: [8], dtype: int32}, target: {shape: [8], dtype: int32}}
  layers:
    - {type: Embedding, input_dim: 4, output_dim: 8}
    - {type: LSTM, units: 16, return_sequences: true}
    - {type: Dense, units: 4, name: logits}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, target], from_logits: true}]
data: {train: {source: text, path: text.txt, tokenizer: characters, length: 8, batch_size: 16, shuffle: true}}
solver: {type: Adam, learning_rate: 0.02}
train: {max_epochs: 4}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a net that has learned to repeat `abcd`."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("abcd" * 1000)
    Path("train.yaml").write_text(TRAIN)
    return netspec.train("train.yaml", run_dir=tmp_path / "run").run_dir


@pytest.mark.parametrize("causal", [False, True])
def test_training_warns_of_later_tokens(run: Path, causal: bool) -> None:
    spec = yaml.safe_load(TRAIN)
    if not causal:
        spec["net"]["layers"][1] = {"type": "Bidirectional", "layer": spec["net"]["layers"][1]}
    events: list[Any] = []
    netspec.train(spec, run_dir=run.parent / "other", listeners=[events.append])
    warnings = [event["message"] for event in events if event["event"] == "warning"]
    assert len(warnings) == (0 if causal else 1)
    assert causal or warnings[0].startswith("`logits` depends on later tokens of `text`")


def test_a_learned_text_is_continued(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert netspec.generate(run, "ab", tokens=20, temperature=0) == "cdab" * 5
    capsys.readouterr()
    assert main(["generate", "run", "--prompt", "ab", "--tokens", "6", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "abcdabcd\n"


def test_a_prompt_is_read_from_standard_input(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["generate", "run", "--prompt", "-", "--tokens", "6", "--temperature", "0"]
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"ab\n")))
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out == "abcdabcd\n"
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"ab")))
    assert main([*words, "--json"]) == 0
    assert loads(capsys.readouterr().out) == {"prompt": "ab", "text": "cdabcd"}
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\xff")))
    assert main(words) == 2
    assert "the standard input is not UTF-8" in capsys.readouterr().err


def test_beam_search_draws_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert netspec.generate(run, "ab", tokens=10, beams=3) == "cdabcdabcd"
    capsys.readouterr()
    assert main(["generate", "run", "--prompt", "ab", "--tokens", "6", "--beams", "2"]) == 0
    assert capsys.readouterr().out == "abcdabcd\n"
    with pytest.raises(InputError, match="`beams` cannot be combined with `temperature`, `top_k`"):
        netspec.generate(run, "ab", beams=2, top_k=3)
    with pytest.raises(InputError, match="the number of beams must be 1 or more"):
        netspec.generate(run, "ab", beams=0)


def test_text_is_generated_in_the_precision_of_the_training(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def text_model(model: Model) -> TextModel:
        opened.append(str(model.compiler.precision))
        return TextModel(model)

    monkeypatch.setattr("netspec.tools.inference.generate.TextModel", text_model)
    Path("train.yaml").write_text(TRAIN.replace("train: {max", "train: {precision: bfloat16, max"))
    netspec.generate("train.yaml", "ab", tokens=2, weights=run / "weights.h5")
    assert opened == ["bfloat16"]


def test_the_same_seed_generates_the_same_text(run: Path) -> None:
    texts = [netspec.generate(run, "a", tokens=60, temperature=5.0, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]
    assert "".join(netspec.generate_stream(run, "a", tokens=60, temperature=5.0, seed=1)) == texts[0]


def test_a_text_is_decoded_piece_by_piece() -> None:
    lengths = []

    class Bytes:
        def decode(self, numbers: list[int]) -> str:
            lengths.append(len(numbers))
            return bytes(numbers).decode(errors="replace")

    text = "añ€😀 " * 200
    pieces = list(decoded_pieces(cast(Any, Bytes()), iter(text.encode()), list("für".encode())))
    assert pieces == list(text)
    assert max(lengths) <= 8  # two characters of four bytes

    class Words:
        def decode(self, numbers: list[int]) -> str:
            return " ".join(f"w{number}" for number in numbers)

    assert list(decoded_pieces(cast(Any, Bytes()), iter("aü".encode()[:2]), [])) == ["a", "�"]
    assert list(decoded_pieces(cast(Any, Words()), iter([1, 2, 3]), [0])) == [" w1", " w2", " w3"]


def test_unknown_characters_of_a_prompt_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    note = "the prompt has 2 characters outside the vocabulary: 'ä', '!'"
    assert main(["generate", "seq2seq", "--prompt", "3 Mäy 2019!"]) == 0
    out, err = capsys.readouterr()
    assert (out, f"\nnote: {note}\n" in err) == ("2019-05-03\n", True)
    assert main(["generate", "seq2seq", "--prompt", "3 Mäy 2019!", "--json"]) == 0
    assert loads(capsys.readouterr().out)["notes"] == [note]
    with pytest.warns(UserWarning, match="the prompt has 2 characters") as warned:
        netspec.generate("seq2seq", "3 Mäy 2019!")
    assert warned[0].filename == __file__
    assert main(["generate", "seq2seq", "--prompt", "3 May 2019", "--json"]) == 0
    assert "notes" not in loads(capsys.readouterr().out)


def test_unknown_prompts_are_refused(run: Path) -> None:
    with pytest.raises(InputError, match="the prompt cannot be encoded: the character 'x' is not in the vocabulary"):
        netspec.generate(run, "abx")
    with pytest.raises(InputError, match="the prompt is empty"):
        netspec.generate(run, "")


def test_a_model_has_the_tokenizer_of_its_training(run: Path) -> None:
    tokenizer = netspec.load(run).tokenizer
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode("dcba")) == "dcba"
