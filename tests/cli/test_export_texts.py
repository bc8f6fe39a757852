"""The script of an exported model that generates text prints the same texts as `netspec generate`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from netspec.tools.inference import generate as generating
from netspec.tools.inference.predict import predict
from tests.cli.conftest import Netspec
from tests.cli.exported_scripts import run_script, train_spec

pytestmark = pytest.mark.filterwarnings("ignore:the prompt has")

generate = partial(generating.generate, device="reference")
"""`netspec.generate` without kernels to compile: each net writes few tokens."""
PAIRS = "{type: byte_pairs, size: 270, padding: true, start_end: true}"
LANGUAGE_MODEL = """
netspec: 1
net:
  netspec: 1
  inputs: {text: {shape: [8], dtype: int32}, target: {shape: [8], dtype: int32}}
  layers:
    - {type: Embedding, from: text, input_dim: SIZE, output_dim: 8}
    - LAYER
    - {type: Dense, units: SIZE, name: logits}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, target], from_logits: true}]
data: {train: {source: text, path: text.txt, tokenizer: TOKENIZER, length: 8, batch_size: 4}}
solver: {type: Adam, learning_rate: 0.02}
train: {max_steps: 40}
"""
LAYERS = {
    "recurrent": "{type: GRU, units: 8, return_sequences: true}",
    "attention": "{type: PositionEmbedding, sequence_length: 8}\n"
    "    - {type: MultiHeadAttention, num_heads: 1, key_dim: 8, use_causal_mask: true}",
    "convolution": "{type: Permute, dims: [2, 1]}\n"
    "    - {type: Conv1D, filters: 8, kernel_size: 3, padding: causal}\n"
    "    - {type: Permute, dims: [2, 1]}",
}
TOKENIZERS = {
    "characters": ("characters", "7"),
    "words": ("{type: words, padding: true, unknown: true}", "7"),
    "pairs": (PAIRS, "270"),
}
"""Settings, and the number of tokens."""
TOGETHER = {("recurrent", "words"), ("attention", "pairs"), ("convolution", "characters"), ("recurrent", "characters")}
"""Layers and tokenizers, each at least once; the other pairs are exhaustive tests."""
ENCODER_DECODER = """
netspec: 1
net:
  netspec: 1
  inputs:
    source: {shape: [5], dtype: int32}
    previous: {shape: [4], dtype: int32}
    target: {shape: [4], dtype: int32}
  layers:
    - {type: Embedding, input_dim: SIZE, output_dim: 8, mask_zero: true, from: source}
    - {name: encoded, type: GRU, units: 24}
    - {name: repeated, type: RepeatVector, n: 4}
    - {name: written, type: Embedding, input_dim: SIZE, output_dim: 8, from: previous}
    - {type: Concatenate, axis: 2, from: [written, repeated]}
    - {type: GRU, units: 24, return_sequences: true}
    - {name: logits, type: Dense, units: SIZE}
  outputs: [logits]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, target], from_logits: true}]
data:
  train:
    source: csv
    path: pairs.csv
    header: true
    columns:
      from: {type: text, field: source, tokenizer: SOURCE, length: 5}
      to: {type: text, field: target, tokenizer: TARGET, length: 4, decoder_input: previous}
    batch_size: 20
    shuffle: true
solver: {type: Adam, learning_rate: 0.02}
train: {max_steps: 60}
"""


def train(netspec: Netspec, text: str, **values: str) -> None:
    """Train with values in place of names in capitals."""
    train_spec(netspec, text, "--device", "reference", **values)


def export(netspec: Netspec, *options: str) -> str:
    """Export to the folder `deployed`; return the card."""
    netspec.ok("export", "run", "--output", "deployed", *options)
    return Path("deployed/README.md").read_text()


def output(*arguments: str, content: str = "") -> str:
    """Run the script; return its standard output, without the last line break."""
    done = run_script(*arguments, folder="deployed", path="run.py", content=content.encode())
    assert done.status == 0, done.err
    return done.out.removesuffix("\n")


def script_error(*arguments: str, status: int) -> str:
    """Run the script, which fails; return its last message."""
    done = run_script(*arguments, folder="deployed", path="run.py")
    assert (done.status, done.out) == (status, "")
    return done.err.splitlines()[-1]


def assert_card_is_real(card: str) -> None:
    """Run the command and the program of a card, and compare the output of the command."""
    found = re.search(r"```\n\$ python run.py (.*?--prompt.*?)\n(.*?)\n```", card, re.DOTALL)
    assert found is not None
    command = [sys.executable, "run.py", *shlex.split(found[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="deployed", env={})
    assert done.stdout.removesuffix("\n") == found[2]
    program = re.findall("```python\n(.*?)```", card, re.DOTALL)[-1]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="deployed")
    assert found[2].endswith(done.stdout.removesuffix("\n"))


@pytest.mark.parametrize(
    ("layer", "tokenizer"),
    [
        pytest.param(layer, tokenizer, marks=() if (layer, tokenizer) in TOGETHER else pytest.mark.exhaustive)
        for layer in LAYERS
        for tokenizer in TOKENIZERS
    ],
)
def test_a_language_model_continues_a_prompt(netspec: Netspec, work: Path, layer: str, tokenizer: str) -> None:
    if tokenizer == "pairs":
        pytest.importorskip("tokenizers")
    Path("text.txt").write_text("ab cd\n" * 200 + "é d")
    settings, size = TOKENIZERS[tokenizer]
    train(netspec, LANGUAGE_MODEL, LAYER=LAYERS[layer], TOKENIZER=settings, SIZE=size)
    card = export(netspec)
    assert "tokens of a text, from `vocabulary.json`" in card
    assert ("It runs `step.onnx`" in card) == Path("deployed/step.onnx").exists() == (layer == "recurrent")
    tokens = 30  # more tokens than the window has
    for prompt in ("ab", "cd\nab cd\nab é d ab"):
        for temperature, seed in ((0.0, 1), (0.8, 7)):
            text = generate("run", prompt, tokens=tokens, temperature=temperature, seed=seed)
            options = [f"--tokens={tokens}", f"--temperature={temperature}", f"--seed={seed}"]
            assert output("--prompt", prompt, *options) == prompt + text


def test_an_export_of_another_kind_removes_the_files_of_an_earlier_one(netspec: Netspec, work: Path) -> None:
    Path("text.txt").write_text("ab cd\n" * 200 + "é d")
    settings, size = TOKENIZERS["characters"]
    deployed = Path("deployed")
    deployed.mkdir()
    (deployed / "own.onnx").write_bytes(b"not of an export")
    for layer, models in (("recurrent", {"model.onnx", "step.onnx"}), ("convolution", {"model.onnx"})):
        shutil.rmtree("run", ignore_errors=True)
        train(netspec, LANGUAGE_MODEL, LAYER=LAYERS[layer], TOKENIZER=settings, SIZE=size)
        export(netspec)
        assert {file.name for file in deployed.glob("*.onnx")} == {*models, "own.onnx"}
    assert output("--prompt", "-", "--tokens=3", content="ab\n") == "ab" + generate("run", "ab", tokens=3)
    assert output("--prompt", "ab").startswith("ab")
    answer = json.loads(output("--prompt", "ab", "--tokens=3", "--json"))
    assert answer == {"prompt": "ab", "text": generate("run", "ab", tokens=3)}
    assert script_error("--prompt", "", status=2) == "error: the prompt is empty"


def test_a_recurrent_language_model_remembers_more_than_a_window(netspec: Netspec, work: Path) -> None:
    Path("text.txt").write_text("ab cd\n" * 100 + "dc ba\n" * 100)
    layers = "{type: LSTM, units: 16, return_sequences: true}\n    - {type: LSTM, units: 8, return_sequences: true}"
    train(netspec, LANGUAGE_MODEL, LAYER=layers, TOKENIZER="characters", SIZE="6")
    export(netspec)
    for temperature in (0.0, 2.0):
        text = generate("run", "ab cd\ndc ba\n", tokens=60, temperature=temperature)
        options = ["--tokens=60", f"--temperature={temperature}"]
        assert output("--prompt", "ab cd\ndc ba\n", *options) == "ab cd\ndc ba\n" + text
    card = export(netspec, "--batch-size", "2")
    assert "the token `text` [2, 1]" in card
    assert "States: `lstm.state_h.before` → `lstm.state_h`, `lstm.state_c.before` → " in card
    assert output("--prompt", "ab", "--tokens=60", "--temperature=2") == "ab" + generate(
        "run", "ab", tokens=60, temperature=2.0
    )


def test_a_language_model_refuses_unknown_characters_and_wrong_settings(netspec: Netspec, work: Path) -> None:
    Path("text.txt").write_text("ab cd\n" * 200)
    train(netspec, LANGUAGE_MODEL, LAYER=LAYERS["attention"], TOKENIZER="characters", SIZE="6")
    export(netspec, "--batch-size", "3")
    assert output("--prompt", "ab", "--temperature=0") == "ab" + generate("run", "ab", temperature=0)
    assert script_error("--prompt", "ax", status=2) == "error: 'x' is not in the vocabulary"
    reason = "error: tokens must be 1 or more, and the temperature 0 or more"
    assert script_error("--prompt", "ab", "--temperature=-1", status=2) == reason
    assert script_error("--prompt", "ab", "--tokens=0", status=2) == reason
    Path("text.txt").unlink()
    card = export(netspec)  # with the logits as output, without the softmax
    assert "$ python run.py --prompt TEXT --temperature 0.8 --tokens 4\n```" in card
    for temperature in (0.0, 0.8):
        text = generate("run", "ab", temperature=temperature)
        assert output("--prompt", "ab", f"--temperature={temperature}") == "ab" + text


def test_a_net_that_reads_later_tokens_takes_arrays(netspec: Netspec, work: Path) -> None:
    Path("text.txt").write_text("ab cd\n" * 200)
    layer = "{type: Bidirectional, layer: {type: GRU, units: 4, return_sequences: true}}"
    train(netspec, LANGUAGE_MODEL, LAYER=layer, TOKENIZER="characters", SIZE="6")
    assert "python run.py ARRAYS.npz" in export(netspec)


@pytest.mark.parametrize("kind", ["characters", "words", "pairs"])
def test_an_encoder_decoder_net_rewrites_a_prompt(netspec: Netspec, work: Path, kind: str) -> None:
    if kind == "pairs":
        pytest.importorskip("tokenizers")
    blank = "" if kind == "characters" else " "
    parts = list(product("abc", repeat=2)) + list(product("abc", repeat=3))
    rows = [f"{blank.join(part)},{blank.join(reversed(part))}" for part in parts * 10]
    Path("pairs.csv").write_text("\n".join(["from,to", *rows]) + "\n")
    source = PAIRS if kind == "pairs" else f"{{type: {kind}, padding: true, unknown: true}}"
    target = PAIRS if kind == "pairs" else f"{{type: {kind}, padding: true, start_end: true}}"
    train(netspec, ENCODER_DECODER, SIZE="270" if kind == "pairs" else "8", SOURCE=source, TARGET=target)
    card = export(netspec)
    assert_card_is_real(card)
    assert "| float32 | score of each token at each position |" in card
    assert "tokens of the text so far, from `vocabulary.json`: the start token first" in card
    prompts = ["a b", "c a b", " b a c ", "c x a"] if kind != "characters" else ["ab", "cab", " bac ", "cxa"]
    texts = [output("--prompt", prompt) for prompt in prompts]
    assert texts == [generate("run", prompt) for prompt in prompts]
    assert texts == predict("run", [{"from": prompt} for prompt in prompts], device="reference").answers["text"]
    assert len({*texts}) > 1
    assert script_error("--prompt", " ", status=2) == "error: the prompt is empty"
    error = script_error("--prompt", blank.join("abcabc"), status=2)
    assert re.fullmatch(r"error: the prompt is too long: \d+ tokens, at most 5", error)
    if kind != "pairs":  # the tokenizers of pairs encode any text
        assert script_error("--prompt", "x", status=2) == "error: the vocabulary has no token of the prompt"


def test_the_text_of_an_encoder_decoder_net_needs_no_data(netspec: Netspec, work: Path) -> None:
    Path("pairs.csv").write_text("from,to\n" + "ab,ba\nbc,cb\n" * 20)
    tokenizer = "{type: characters, padding: true}"
    start_end = "{type: characters, padding: true, start_end: true}"
    train(netspec, ENCODER_DECODER, SIZE="6", SOURCE=tokenizer, TARGET=start_end)
    Path("pairs.csv").unlink()
    card = export(netspec, "--batch-size", "2")
    assert "$ python run.py --prompt TEXT\n```" in card
    assert "`logits`: choice of the most probable token" in card
    assert output("--prompt", "ab") == generate("run", "ab") == "ba"
    assert script_error("--prompt", "xa", status=2) == "error: 'x' is not in the vocabulary"
    assert output("-h").startswith("usage: run.py [-h] --prompt TEXT")


def test_the_card_of_a_language_model_has_a_prompt_of_the_data(netspec: Netspec, work: Path) -> None:
    Path("text.txt").write_text("ab cd\nd it's\n" * 200)
    text = LANGUAGE_MODEL.replace("[8]", "[20]").replace("length: 8", "length: 20")
    train(netspec, text, LAYER=LAYERS["recurrent"], TOKENIZER="characters", SIZE="10")
    card = export(netspec)
    assert '$ python run.py --prompt "d it\'s" --temperature 0.8 --tokens 10' in card
    assert_card_is_real(card)


def test_the_encoder_decoder_net_of_the_zoo_rewrites_dates(netspec: Netspec, work: Path) -> None:
    netspec.ok("export", "seq2seq", "--output", "deployed")
    assert output("--prompt", "3 May 2019") == "2019-05-03"
    for prompt in ("Tuesday, 3 May 2019", "7/28/1999", "☃ 3", "x 20.6.2033"):
        assert output("--prompt", prompt) == generate("seq2seq", prompt)
    assert json.loads(output("--prompt", "7/28/1999", "--json")) == {"prompt": "7/28/1999", "text": "1999-07-28"}
    done = run_script("--prompt", "☃☃ 3x")
    assert (
        done.err == netspec("generate", "seq2seq", "--prompt", "☃☃ 3x", "--device", "reference").err.split("\n", 1)[1]
    )
    assert done.err.startswith("note: the prompt has 2 characters")
    assert script_error("--prompt", "☃", status=2) == "error: the vocabulary has no token of the prompt"
    assert script_error("--prompt", "1 " * 16, status=2) == "error: the prompt is too long: 31 tokens, at most 30"
