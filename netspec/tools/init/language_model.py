"""Running text, a file or a folder of files: a survey of its characters, and a net that predicts the next token."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from netspec.errors import InputError, command, counted, install_command
from netspec.tools.init.files import (
    Duplicates,
    Files,
    document,
    entry,
    items,
    most_epochs,
    patient_epochs,
    training,
)
from netspec.tools.init.project import Project
from netspec.tools.init.search_space import DROPOUT, SearchSpace
from netspec.tools.init.tables import TARGETS, delimited_names

MAX_BYTES = 2**25
"""Limit of the text that is read."""
LARGE = 5_000_000
"""From this number of bytes on, tokens are pieces of words, and the net is a transformer."""
PIECES = 4_000
"""Size of the vocabulary of pieces of words."""
PIECE_BYTES = 4
"""Number of bytes of a piece of a word, on average."""
MAX_CHARACTERS = 4_000
"""Largest vocabulary of characters; further ones are unknown."""
LENGTHS = 128, 64, 32
"""Numbers of tokens of a window, the best first."""
HELD_OUT = 0.1
"""Share of each file that is held out for validation, and for the test."""
COVERED = 0.75
"""Share of the held-out text that windows must cover."""
WIDTHS = ((50_000, 64), (500_000, 128))
"""Pairs: below this number of bytes, an LSTM has this many units."""
WIDEST = 256
TINY = 100_000
"""A net learns little more than words from fewer characters than this."""
BATCH = 16

Layers = list[tuple[dict[str, Any], str]]


@dataclass
class Corpus:
    """Findings about running text."""

    files: Sequence[Path]
    size: int
    """Number of bytes of all files."""
    characters: Counter[str] = field(default_factory=Counter)
    """Number of occurrences of each character."""
    complete: bool = True
    """Whether all text was read."""
    duplicates: Duplicates = field(default_factory=lambda: Duplicates("texts"))

    @property
    def is_large(self) -> bool:
        """Whether the tokens are pieces of words."""
        return self.size >= LARGE

    @property
    def tokens(self) -> int:
        """Size of the vocabulary."""
        return PIECES if self.is_large else min(MAX_CHARACTERS, len(self.characters) + 1)

    @property
    def bytes_per_token(self) -> float:
        """Number of bytes of a token, on average."""
        return PIECE_BYTES if self.is_large else self.size / max(1, self.characters.total())

    @property
    def tokenizer(self) -> tuple[dict[str, Any], str]:
        """The tokenizer of the source, and the reason for it."""
        if self.is_large:
            return {"type": "byte_pairs", "size": self.tokens}, "pieces of words, so that a window covers more text"
        distinct = len(self.characters)
        why = f"{distinct:,} different characters, and one index for those that only other texts have"
        if self.tokens <= distinct:
            why = f"the most frequent of {distinct:,} characters; one index for all others"
        return {"type": "characters", "unknown": True, "size": self.tokens}, why


def is_running_text(path: Path, target: str | None, task: str | None) -> bool:
    """Return whether a file is running text: if `task` says so, or by default if it is named *.txt without a target."""
    if task is not None or path.suffix.lower() != ".txt" or target is not None:
        return task == "language_model"
    return not any(name.lower() in TARGETS for name in delimited_names(path))


def language_files(project: Project) -> Files:
    """Return the files for running text. Raises `InputError` for text that is not UTF-8, or too short."""
    path = project.data
    corpus = _read(path)
    length = _window(path, corpus)
    files = Files("language model", "", "", [
        f"{corpus.size:,} bytes of text in {counted(len(corpus.files), 'file')}, "
        f"{len(corpus.characters):,} different characters" + " in a sample" * (not corpus.complete),
        f"tokens: {'pieces of words' if corpus.is_large else 'characters'}, in windows of {length}",
    ])  # fmt: skip
    files.warnings += corpus.duplicates.warnings()
    if corpus.size < TINY:
        files.warnings.append(
            f"{corpus.size:,} bytes are few: the net will learn frequent words, but hardly any sentences"
        )
    if corpus.is_large and find_spec("tokenizers") is None:
        files.warnings.append(f"`byte_pairs` needs a library: {install_command('text')}")
    if path.is_file() and len(names := delimited_names(path)) > 1:
        files.warnings.append(
            f"the lines look like a table of {len(names)} columns: to predict one, name it with --target"
        )
    files.net = _net(project, corpus, length)
    files.train = _train(project, corpus, length)
    return files


def _read(path: Path) -> Corpus:
    """Read the text, or the beginning of large text."""
    from netspec.data.text.files import blocks, part_of, text_files_below

    files = text_files_below(path) if path.is_dir() else [path]
    corpus = Corpus(files, sum(file.stat().st_size for file in files))
    read = 0
    for file in files:
        content = 0
        for block in blocks(part_of(file, 0.0, 1.0)):
            corpus.characters.update(block.text)
            content = hash((content, block.text))
            read += len(block.text.encode())
            if read > MAX_BYTES:
                corpus.complete = False
                return corpus
        corpus.duplicates.add(content, str(file))
    return corpus


def _window(path: Path, corpus: Corpus) -> int:
    """Return the number of tokens of a window: the largest with which windows cover the ends of most files."""
    held_out = [HELD_OUT * file.stat().st_size / corpus.bytes_per_token for file in corpus.files]
    for length in LENGTHS:
        covered = sum((tokens - 1) // length * length for tokens in held_out if tokens > length)
        if covered >= COVERED * sum(held_out) or (length == LENGTHS[-1] and len(held_out) == 1 and covered):
            return length
    several = len(held_out) > 1
    joined = path.resolve().with_name(f"{path.resolve().name}.txt")
    raise InputError(
        f"the files in {path} are too short" if several else f"{path}: the text is too short",
        expected=f"at least {(LENGTHS[-1] + 1) / HELD_OUT:,.0f} characters{' in most files' * several}, since "
        f"validation and test each take {HELD_OUT:.0%} of {'each file' if several else 'the text'}",
        got=f"{corpus.size:,} bytes in {counted(len(held_out), 'file')}",
        hint=f"join them: `find {shlex.quote(str(path))} -name '*.txt' -exec cat {{}} + > {shlex.quote(str(joined))}`, "
        f"then `{command('init', joined)}`; to classify texts, move the files of each class into a folder of their own"
        if several else None,
    )  # fmt: skip


def _recurrent(corpus: Corpus, space: SearchSpace) -> tuple[list[str], Layers]:
    """Return the layers of a net with LSTM layers."""
    units = next((units for most, units in WIDTHS if corpus.size < most), WIDEST)
    width = space.net_variable("width", units, {"low": 32, "high": 512, "log": True}, "units of an LSTM layer")
    depth = space.net_variable("depth", 1, {"low": 1, "high": 3}, "LSTM layers")
    rate = space.net_variable("dropout", 0.3, DROPOUT, "share of values set to 0")
    embedding = {"type": "Embedding", "input_dim": corpus.tokens, "output_dim": 64, "from": "text"}
    lstm = {"name": "lstm", "type": "LSTM", "units": width, "return_sequences": True}
    lstm |= {"repeat": depth} if space.searched else {}
    return [], [
        (embedding, "a vector for each token"),
        (lstm, f"few units for {corpus.size:,} bytes" * (units < WIDEST)),
        ({"type": "Dropout", "rate": rate}, "against overfitting"),
    ]


def _transformer(corpus: Corpus, length: int, space: SearchSpace) -> tuple[list[str], Layers]:
    """Return the block and the layers of a small GPT."""
    width = space.net_variable("width", 128, {"low": 64, "high": 512, "step": 64}, "elements of a vector")
    depth = space.net_variable("depth", 4, {"low": 2, "high": 8}, "blocks")
    rate = space.net_variable("dropout", 0.1, DROPOUT, "share of values set to 0")
    attention = {"type": "MultiHeadAttention", "num_heads": 4, "key_dim": "${width // 4}", "use_causal_mask": True}
    body: Layers = [
        ({"type": "LayerNormalization"}, ""),
        (attention, "each token reads those before it"),
        ({"name": "attention", "type": "Dropout", "rate": "${dropout}"}, ""),
        ({"name": "attended", "type": "Add", "from": ["x", "attention"]}, ""),
        ({"type": "LayerNormalization"}, ""),
        ({"type": "Dense", "units": "${4 * width}", "activation": "gelu"}, ""),
        ({"type": "Dense", "units": "${width}"}, ""),
        ({"name": "features", "type": "Dropout", "rate": "${dropout}"}, ""),
        ({"type": "Add", "from": ["attended", "features"]}, ""),
    ]
    block = ["blocks:", "  transformer:   # pre-norm, as in GPT-2", "    params: {width, dropout}", "    inputs: [x]"]
    call = {"name": "block", "type": "transformer", "width": width, "dropout": rate, "repeat": depth}
    tokens = {"name": "tokens", "type": "Embedding", "input_dim": corpus.tokens, "output_dim": width, "from": "text"}
    return [*block, "    layers:", *items(body, 6)], [
        (tokens, "a vector for each token"),
        ({"name": "positions", "type": "PositionEmbedding", "sequence_length": length}, ""),
        ({"type": "Add", "from": ["tokens", "positions"]}, ""),
        ({"type": "Dropout", "rate": rate}, "against overfitting"),
        (call, ""),
        ({"type": "LayerNormalization"}, ""),
    ]


def _net(project: Project, corpus: Corpus, length: int) -> str:
    space = project.space
    blocks, layers = _transformer(corpus, length, space) if corpus.is_large else _recurrent(corpus, space)
    logits = {"name": "logits", "type": "Dense", "units": corpus.tokens}
    pair = ["logits", "target"]
    kind = "transformer" if corpus.is_large else "recurrent net"
    window = {"shape": [length], "dtype": "int32"}
    return document([
        *project.net_head(f"A language model: a small {kind} that predicts the next token."),
        *entry("text", window, "a window of tokens", 2),
        *entry("target", window, "the token after each of them", 2),
        *blocks,
        "layers:",
        *items([*layers, (logits, "one output for each token of the vocabulary")], 2),
        *entry("losses", [{"type": "SparseCategoricalCrossentropy", "from": pair, "from_logits": True}]),
        *entry("metrics", [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": pair}]),
    ])  # fmt: skip


def _train(project: Project, corpus: Corpus, length: int) -> str:
    stride = length if corpus.is_large else length // 2
    windows = round((1 - 2 * HELD_OUT) * corpus.size / corpus.bytes_per_token / stride)
    share = f"{HELD_OUT:.0%}"
    lines = [
        *project.train_head(f"on the text in {project.location}"),
        "    source: text",
        *entry("path", project.path_of(project.data), "all .txt files below this folder" * project.data.is_dir(), 4),
        *entry("tokenizer", *corpus.tokenizer, 4),
        *entry("length", length, "tokens that the net reads at once", 4),
        *(entry("stride", stride, "windows overlap by half, so that more tokens have context", 4)
          if stride < length else []),
        *entry("split", {"validation": HELD_OUT, "test": HELD_OUT},
               f"of the end of each file: {share} to watch during training, {share} for the final test", 4),
        *entry("batch_size", BATCH, "", 4), *entry("shuffle", True, "", 4),
    ]  # fmt: skip
    patience = patient_epochs(windows, BATCH, 3)
    epochs = most_epochs(windows, patience)
    rate = 0.001 if corpus.is_large else 0.003
    return document([
        *lines,
        *training(monitor="loss", epochs=epochs, patience=patience, space=project.space, learning_rate=rate),
    ])  # fmt: skip
