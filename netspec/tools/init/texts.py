"""Folders of texts, one for each class: a survey of their files, and a small net over word embeddings."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from netspec.data.file_kinds import TEXTS
from netspec.data.text.tokens import word_pattern
from netspec.errors import counted, listing
from netspec.tools.init.class_folders import ClassFiles, class_files, split_entry, training_folder
from netspec.tools.init.files import (
    Duplicates,
    Files,
    class_losses,
    class_monitor,
    document,
    entry,
    explained_entries,
    items,
    most_epochs,
    nine_of_ten,
    patient_epochs,
    training,
)
from netspec.tools.init.project import Project
from netspec.tools.init.search_space import SearchSpace

MIN_WORDS, MAX_WORDS = 100, 20_000
"""Smallest and largest size of the vocabulary."""
WIDTHS = ((1_000, 16), (10_000, 32))
"""Pairs: below this number of texts, the vector of a word has this many elements."""
WIDEST = 64
TINY = 200
"""With fewer texts than this, the results depend on chance."""
TEXT = "text"
"""Name of the input of texts. A column may have any name, also that of a layer."""
NOT_UTF8 = "not text in UTF-8"
TOKEN = re.compile(word_pattern("apart"))
SYMBOL_SHARE = 0.01
"""If at least this share of the texts has emoji or other symbols, they are words."""
BATCH = 32
MAX_FILES, MAX_BYTES = 5_000, 2**25
"""Limits of the texts that are read."""

Layers = list[tuple[dict[str, Any], str]]


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of a net."""

    words: int
    """Number of words."""
    width: int
    """Number of elements of the vector of a word."""
    why: str
    punctuation: str = "drop"
    """The field `punctuation` of the tokenizer."""

    @property
    def tokenizer(self) -> dict[str, Any]:
        """The tokenizer of the source."""
        return {"type": "words", "lowercase": True, "punctuation": self.punctuation, "padding": True, "unknown": True,
                "size": self.words}  # fmt: skip


class TextSurvey:
    """The words of texts."""

    def __init__(self, texts: Iterable[tuple[str, int]] = ()) -> None:
        """Survey texts, each with the number of its copies."""
        self.texts = 0
        self._counts = Counter[str]()
        """Number of occurrences of each word, punctuation mark and symbol, in lower case."""
        self._sizes = Counter[tuple[int, int]]()
        """Number of texts by their number of words, and their number of words, marks and symbols."""
        self._with_symbols = Counter[str]()
        """Number of texts by their first emoji or other symbol."""
        for text, copies in texts:
            self.add(text, copies)

    def add(self, text: str, copies: int = 1) -> None:
        """Add a text."""
        tokens = TOKEN.findall(text.lower())
        marks = [token for token in tokens if not _is_word(token)]
        self.texts += copies
        self._sizes[len(tokens) - len(marks), len(tokens)] += copies
        for token in tokens:
            self._counts[token] += copies
        if symbol := next(filter(_is_symbol, marks), None):
            self._with_symbols[symbol] += copies

    @property
    def _symbol_share(self) -> float:
        return self._with_symbols.total() / max(1, self.texts)

    @property
    def _keeps_marks(self) -> bool:
        """Whether marks and symbols are words."""
        return self._symbol_share >= SYMBOL_SHARE

    @property
    def lengths(self) -> list[int]:
        """Number of words of each text."""
        keeps_marks = self._keeps_marks
        return [size[keeps_marks] for size, copies in self._sizes.items() for _ in range(copies)]

    @property
    def without_words(self) -> int:
        """Number of texts without words."""
        return self.lengths.count(0)

    def vocabulary(self, texts: int, *, complete: bool) -> Vocabulary:
        """Return the vocabulary for N texts with these words: the words that occur more than once.

        A net cannot learn from a word that occurs once. Unless the survey is `complete`, however, such a word may occur
        again in other texts.
        """
        keeps_marks = self._keeps_marks
        counts = [count for word, count in self._counts.items() if keeps_marks or _is_word(word)]
        width = next((width for most, width in WIDTHS if texts < most), WIDEST)
        recurring = sum(count > 1 for count in counts)
        if not complete or recurring > MAX_WORDS:
            words, why = MAX_WORDS, f"the {MAX_WORDS:,} most frequent words of the training part"
        else:
            words = max(MIN_WORDS, -(-recurring // 50) * 50)
            why = f"{recurring:,} of {len(counts):,} words occur more than once: others are unknown"
        if not keeps_marks:
            return Vocabulary(words, width, why)
        symbols = ", ".join(symbol for symbol, _ in self._with_symbols.most_common(3))
        why += f"; `apart` makes words of symbols, which {self._symbol_share:.0%} of the texts have, such as {symbols}"
        return Vocabulary(words, width, why, "apart")


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _is_symbol(character: str) -> bool:
    """Return whether a character is an emoji or a similar symbol, such as `★`, but not `+`, `€` or `°`."""
    return character > "\xff" and unicodedata.category(character) == "So"


def text_length(lengths: Iterable[int]) -> int:
    """Return the number of words of a text that a net reads, from the lengths of texts: enough for nine of ten."""
    return max(8, min(400, round(nine_of_ten(lengths) * 1.2)))


def empty_warning(count: int) -> list[str]:
    """Return a warning if there are texts without words."""
    return [f"{counted(count, 'text')} {'has' if count == 1 else 'have'} no words"] if count else []


def text_training(samples: int, monitor: str, space: SearchSpace) -> list[str]:
    """Return `solver`, `train` and `search` for N texts."""
    patience = patient_epochs(samples, BATCH, 5)
    return training(monitor=monitor, epochs=most_epochs(samples, patience), patience=patience, space=space)


def tiny_warning(texts: int) -> list[str]:
    """Return a warning if there are too few texts for a meaningful test."""
    test = round(0.2 * texts)
    if texts >= TINY or not test:
        return []
    return [
        f"{texts:,} texts are few: the test part has {test}, so that one error changes the accuracy by {1 / test:.0%}"
    ]


def text_layers(
    length: int, vocabulary: Vocabulary, last: dict[str, Any], why: str, space: SearchSpace, features: int = 0
) -> tuple[dict[str, Any], Layers]:
    """Return the inputs and layers of a net that reads texts as the mean of their words' vectors.

    `last` is the last layer. With `features`, the net also reads this many values of other columns.
    """
    width = space.net_variable("width", vocabulary.width, {"low": 8, "high": 128, "log": True}, "elements of a vector")
    rate = space.net_variable("dropout", 0.5, {"low": 0.0, "high": 0.8}, "share of values set to 0")
    embedding = {"type": "Embedding", "input_dim": vocabulary.words, "output_dim": width, "from": TEXT}
    narrow = vocabulary.width < WIDEST
    why_width = "a vector for each word" + ", narrow since there are few texts" * narrow
    is_word = {"name": "is_word", "type": "Expression", "expr": "1 if x > 0 else 0", "from": TEXT}
    weights = {"name": "weights", "type": "Expression", "expr": "x / max(y, 1)", "from": ["is_word", "words"]}
    vectors, phrases = "vectors", Layers()
    if space.searched:
        vectors, phrases = "${'phrases' if depth else 'vectors'}", _phrases(space)
    mean = {"name": "mean", "type": "Einsum", "equation": "nl,nlc->nc", "from": ["weights", vectors]}
    layers: Layers = [
        (embedding, why_width),
        (
            {"name": "vectors", "type": "Dropout", "rate": rate},
            "against overfitting: many words occur only a few times",
        ),
        *phrases,
        (is_word, "0 for padding"),
        ({"name": "words", "type": "Reduction", "operation": "sum"}, "the number of words of a text"),
        (weights, ""),
        (mean, "the mean of the vectors of a text, without padding"),
    ]
    inputs: dict[str, Any] = {TEXT: {"shape": [length], "dtype": "int32"}}
    if features:
        inputs["features"] = {"shape": [features]}
        layers.append(
            ({"name": "joined", "type": "Concatenate", "from": ["mean", "features"]}, "with the other columns")
        )
    return inputs, [*layers, (last, why)]


def _phrases(space: SearchSpace) -> Layers:
    """Return convolutions over words next to each other, with shortcuts, whose number is a variable, by default 0."""
    depth = space.net_variable("depth", 0, {"low": 0, "high": 2}, "convolutions over words next to each other")
    convolution = {"type": "Conv1D", "filters": "${width}", "kernel_size": 3, "padding": "same", "activation": "relu"}
    layers = [
        {"name": "channels", "type": "Permute", "dims": [2, 1]},
        {"name": "convolved", **convolution},
        {"name": "joined", "type": "Add", "from": ["channels", "convolved"]},
        {"type": "Permute", "dims": [2, 1]},
    ]
    return [({"name": "phrases", "repeat": depth, "layers": layers}, "words with their neighbors")]


def text_files(project: Project) -> Files:
    """Return the files for a folder of texts. Raises `InputError` for a single class."""
    texts = class_files(training_folder(project.data), TEXTS)
    sample = _open_sample(texts)
    words = sample.words
    lengths = words.lengths or [100]  # a guess if no text can be read
    unreadable = sample.unreadable
    length = text_length(lengths)
    files = Files("text classification", "", "", [
        texts.summary,
        f"nine of ten texts have at most {nine_of_ten(lengths):,} words, in a sample of {words.texts:,}",
    ])  # fmt: skip
    files.warnings += [*texts.nested_warnings(), *texts.other_warnings()]
    if unreadable:
        wrong_encoding = any(NOT_UTF8 in reason for reason in unreadable)
        hint = "; `iconv -f latin1 -t utf8` converts texts of older programs to UTF-8" * wrong_encoding
        files.warnings.append(f"texts that cannot be read, and are left out: {listing(unreadable, 3)}{hint}")
    files.warnings += empty_warning(words.without_words)
    files.warnings += sample.duplicates.warnings()
    files.warnings += tiny_warning(texts.total)
    vocabulary = words.vocabulary(texts.total, complete=words.texts + len(unreadable) == texts.total)
    last = {"name": "logits", "type": "Dense", "units": len(texts.by_class)}
    inputs, layers = text_layers(length, vocabulary, last, "one output for each class", project.space)
    lines = project.net_head(f"A small net for {len(texts.by_class)} classes of texts.")
    lines += [line for key, value in inputs.items() for line in entry(key, value, "token indices", 2)]
    lines += [*entry("label", {"shape": [], "dtype": "int32"}, "", 2), "layers:", *items(layers, 2)]
    lines += class_losses()
    files.net = document(lines)
    files.train = _train(project, texts, length, vocabulary, skip=bool(unreadable))
    return files


@dataclass
class TextSample:
    """Findings about the texts that were read."""

    words: TextSurvey = field(default_factory=TextSurvey)
    unreadable: list[str] = field(default_factory=list)
    """The files that are not text."""
    duplicates: Duplicates = field(default_factory=lambda: Duplicates("texts"))


def _open_sample(texts: ClassFiles) -> TextSample:
    """Read a sample of the texts of each class."""
    result = TextSample()
    read = 0
    for file in texts.sample(MAX_FILES):
        if read > MAX_BYTES:
            break
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            result.unreadable.append(f"{file} ({NOT_UTF8})")
            continue
        except OSError as error:
            result.unreadable.append(f"{file} ({error.strerror})")
            continue
        read += len(text)
        result.words.add(text)
        result.duplicates.add(hash(text), str(file), texts.class_of(file))
    return result


def _train(project: Project, texts: ClassFiles, length: int, vocabulary: Vocabulary, *, skip: bool) -> str:
    fields: list[tuple[str, Any, str]] = [
        *texts.location(project.folder),
        ("tokenizer", vocabulary.tokenizer, vocabulary.why),
    ]
    if skip:
        fields.append(("on_error", "skip", "some files are not text: they are left out, and counted in the log"))
    padding = {"type": "Padding", "length": length}
    lines = [
        *project.train_head(f"on the texts in {project.location}"),
        "    source: documents",
        *explained_entries(fields, 4),
        *split_entry(project.data, texts.total, stratify="label"),
        *entry("batch_size", BATCH, "", 4), *entry("shuffle", True, "", 4),
        "    transforms:",
        *items([(padding, "nine of ten texts are not longer; the end of longer ones is cut off")], 6),
        *project.stored_splits("documents", fields, BATCH, [padding]),
    ]  # fmt: skip
    return document([*lines, *text_training(texts.total, class_monitor(texts.total, BATCH), project.space)])
