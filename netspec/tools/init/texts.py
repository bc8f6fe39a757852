"""Folders of texts, one for each class: a survey of their files, and a small net over word embeddings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from netspec.errors import listing
from netspec.tools.init.files import (
    Files,
    class_folders,
    class_losses,
    comment,
    data_location,
    document,
    entry,
    files_of_classes,
    has_files,
    hold_out,
    items,
    name_of,
    nested_classes,
    patient_epochs,
    relative,
    training,
)

SUFFIXES = frozenset({".txt"})
WORDS = 20_000
"""Size of the vocabulary."""
TOKENIZER = {
    "type": "words", "lowercase": True, "punctuation": "drop", "padding": True, "unknown": True, "size": WORDS,
}  # fmt: skip
BATCH = 32
FEW_TEXTS = 2_000
"""Number of texts below which the loss decides when training ends."""
MAX_FILES, MAX_SECONDS, MAX_BYTES = 5_000, 5.0, 2**25
"""Limits of the texts that are read."""

Layers = list[tuple[dict[str, Any], str]]


def has_texts(folder: Path) -> bool:
    """Return whether a folder has class folders with texts."""
    return any(has_files(child, SUFFIXES) for child in class_folders(folder))


def text_layers(field: str, length: int, outputs: int) -> tuple[dict[str, Any], Layers]:
    """Return the inputs and layers of a net that classifies texts by the mean of their words' vectors."""
    embedding = {"type": "Embedding", "input_dim": WORDS, "output_dim": 64, "from": field}
    is_word = {"name": "is_word", "type": "Expression", "expr": "1 if x > 0 else 0", "from": field}
    weights = {"name": "weights", "type": "Expression", "expr": "x / max(y, 1)", "from": ["is_word", "words"]}
    mean = {"name": "mean", "type": "Einsum", "equation": "nl,nlc->nc", "from": ["weights", "vectors"]}
    layers: Layers = [
        (embedding, "a vector for each word"),
        ({"name": "vectors", "type": "Dropout", "rate": 0.5}, "against overfitting: many words occur only a few times"),
        (is_word, "0 for padding"),
        ({"name": "words", "type": "Reduction", "operation": "sum"}, "the number of words of a text"),
        (weights, ""),
        (mean, "the mean of the vectors of a text, without padding"),
        ({"name": "logits", "type": "Dense", "units": outputs}, "one output for each class"),
    ]
    return {field: {"shape": [length], "dtype": "int32"}}, layers


def text_files(path: Path, folder: Path, net: str) -> Files:
    """Return the files for a folder of texts. Raises `InputError` for a single class."""
    class_files = files_of_classes(path, "texts", SUFFIXES)
    lengths, unreadable, duplicates = _open_sample(class_files)
    total = sum(map(len, class_files.values()))
    most = lengths[int(0.9 * (len(lengths) - 1))] if lengths else 100
    length = max(8, min(400, round(most * 1.2)))
    counts = [f"{name} {len(files):,}" for name, files in class_files.items()]
    files = Files("text classification", "", "", [
        f"{total:,} texts of {len(class_files)} classes: {listing(counts, 10)}",
        f"nine of ten texts have at most {most:,} words, in a sample of {len(lengths):,}",
    ])  # fmt: skip
    files.warnings += nested_classes(path, class_files)
    if unreadable:
        files.warnings.append(f"texts that cannot be read, and are left out: {listing(unreadable, 3)}")
    if duplicates:
        files.warnings.append(f"copies of other texts: {duplicates:,} of {len(lengths):,}")
    inputs, layers = text_layers("text", length, len(class_files))
    lines = [
        *comment(f"A small net for {len(class_files)} classes of texts."),
        "netspec: 1",
        f"name: {name_of(path)}",
        "inputs:",
    ]
    lines += [line for key, value in inputs.items() for line in entry(key, value, "token numbers", 2)]
    lines += [*entry("label", {"shape": [], "dtype": "int32"}, "", 2), "layers:", *items(layers, 2)]
    lines += class_losses()
    files.net = document(lines)
    files.train = _train(path, folder, net, list(class_files), total, length, skip=bool(unreadable))
    return files


def _open_sample(class_files: dict[str, list[Path]]) -> tuple[list[int], list[str], int]:
    """Return the sorted lengths in words, the files that are not text, and the number of copies."""
    per_class = max(1, MAX_FILES // len(class_files))
    sample = [file for files in class_files.values() for file in files[:: max(1, len(files) // per_class)][:per_class]]
    lengths: list[int] = []
    unreadable: list[str] = []
    seen: set[int] = set()
    deadline, read, duplicates = time.monotonic() + MAX_SECONDS, 0, 0
    for file in sample:
        if time.monotonic() > deadline or read > MAX_BYTES:
            break
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(f"{file} ({str(error)[:60]})")
            continue
        read += len(text)
        lengths.append(len(text.split()))
        duplicates += hash(text) in seen
        seen.add(hash(text))
    return sorted(lengths), unreadable, duplicates


def _train(path: Path, folder: Path, net: str, classes: list[str], total: int, length: int, *, skip: bool) -> str:
    lines = [
        *comment(f"Trains the net in {net} on the texts in {data_location(path, folder)}."),
        "netspec: 1", f"net: {net}", "data:", "  train:", "    source: documents",
        *entry("path", relative(path, folder), "a folder for each class", 4),
        *entry("classes", classes, "labels 0, 1, … in this order", 4),
        *entry("tokenizer", TOKENIZER, f"the {WORDS:,} most frequent words of the training part", 4),
    ]  # fmt: skip
    if skip:
        lines += entry("on_error", "skip", "some files are not text: they are left out, and counted in the log", 4)
    split, why = hold_out(total, stratify="label")
    padding = {"type": "Padding", "length": length}
    lines += [
        *entry("split", split, why, 4), *entry("batch_size", BATCH, "", 4), *entry("shuffle", True, "", 4),
        "    transforms:",
        *items([(padding, "nine of ten texts are not longer; the end of longer ones is cut off")], 6),
    ]  # fmt: skip
    few = total < FEW_TEXTS
    patience = patient_epochs(total, BATCH, 5) if few else 5
    monitor = "loss" if few else "accuracy"
    return document([*lines, *training(monitor=monitor, epochs=max(30, 6 * patience), patience=patience)])
