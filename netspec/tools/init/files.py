"""The texts of the files that `netspec init` writes, and helpers to format them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from netspec.errors import and_more
from netspec.schema.yaml.flow_style import flow

if TYPE_CHECKING:
    from netspec.tools.init.search_space import SearchSpace

Number = TypeVar("Number", int, float)

WIDTH = 110
TRUNK_FILES = ("trunk.yaml", "trunk.h5")
"""Files of an imported trunk, next to net.yaml. A folder of them would count as a class of the data there."""
NORMALIZATION = {"type": "BatchNormalization", "momentum": 0.9}
"""Moving statistics that adapt within a few steps, since epochs of small datasets are short."""
LEAST_STEPS = 150
"""Minimum number of steps without improvement before a training ends."""
FEW_STEPS = 60
"""With fewer steps per epoch than this, the loss of a classifier decides when training ends."""

MAX_PAIRS = 3
"""Number of pairs of duplicates that are named."""


@dataclass
class Files:
    """The content of net.yaml and train.yaml, and what was found in the data."""

    task: str
    net: str
    train: str
    findings: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Duplicates:
    """Counts samples that are identical to an earlier one."""

    def __init__(self, kind: str, remedy: str = "") -> None:
        self._kind = kind
        """Name of the samples in messages, such as `images`."""
        self._remedy = remedy
        """How copies stay in one part of the data; empty if there is no way."""
        self._first: dict[Hashable, tuple[str, str | None]] = {}
        """Name and class of the first sample with each content."""
        self._samples = 0
        self._copies = _Pairs()
        self._copies_in_other_classes = _Pairs()

    def add(self, content: Hashable, name: str, label: str | None = None) -> None:
        """Add a sample with this content, or a hash of it, and with its class, if it is known."""
        self._samples += 1
        first, first_label = self._first.setdefault(content, (name, label))
        if first != name:
            self._copies.add(first, name)
            if label != first_label:
                self._copies_in_other_classes.add(first, name)

    def warnings(self) -> list[str]:
        """Return warnings with examples if there are any."""
        warnings: list[str] = []
        if count := self._copies.count:
            are = "is a duplicate" if count == 1 else "are duplicates"
            warnings.append(
                f"{count:,} of {self._samples:,} {self._kind} {are} ({self._copies}); copies in both training and test "
                f"data make results look too good{self._remedy and f': {self._remedy}'}"
            )
        return warnings + self.class_warnings()

    def class_warnings(self) -> list[str]:
        """Return a warning with examples about copies in another class, if there are any."""
        warnings: list[str] = []
        if count := self._copies_in_other_classes.count:
            are = "duplicate is" if count == 1 else "duplicates are"
            warnings.append(
                f"{count:,} {are} in another class than the first copy ({self._copies_in_other_classes}): check "
                "their labels"
            )
        return warnings


class _Pairs:
    """Pairs of names, of which the first few are kept."""

    def __init__(self) -> None:
        self.count = 0
        self._shown: list[str] = []

    def add(self, first: str, second: str) -> None:
        self.count += 1
        if len(self._shown) < MAX_PAIRS:
            self._shown.append(f"{first} and {second}")

    def __str__(self) -> str:
        return "; ".join(self._shown) + and_more(self.count - len(self._shown))


def comment(text: str, indent: int = 0) -> list[str]:
    """Return a comment as lines."""
    start = " " * indent + "# "
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False)


def entry(key: str, value: Any, why: str = "", indent: int = 0) -> list[str]:
    """Return a line `key: value`, with the reason as a comment: after it if it fits, else above."""
    line = " " * indent + f"{key}: {flow(value)}"
    if not why:
        return [line]
    if len(line) + len(why) + 5 <= WIDTH:
        return [f"{line}   # {why}"]
    return [*comment(why, indent), line]


def entries(fields: Mapping[str, Any], indent: int, reasons: Mapping[str, str] | None = None) -> list[str]:
    """Return a line for each of the fields, each with its reason if there is one."""
    reasons = reasons or {}
    return [line for key, value in fields.items() for line in entry(key, value, reasons.get(key, ""), indent)]


def explained_entries(fields: Iterable[tuple[str, Any, str]], indent: int) -> list[str]:
    """Return a line for each key with its value and reason."""
    return [line for key, value, why in fields for line in entry(key, value, why, indent)]


def items(values: Iterable[tuple[Mapping[str, Any], str]], indent: int) -> list[str]:
    """Return the items of a list, each with the reason for it."""
    lines: list[str] = []
    for value, why in values:
        line = " " * indent + f"- {flow(value)}"
        if why and len(line) + len(why) + 5 <= WIDTH:
            lines.append(f"{line}   # {why}")
        else:
            lines += [*(comment(why, indent) if why else []), line]
    return lines


def document(lines: Sequence[str]) -> str:
    """Return a file of these lines."""
    return "\n".join(lines) + "\n"


def relative(path: Path, folder: Path) -> str:
    """Return the path of the data as a file in `folder` names it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def nine_of_ten(values: Iterable[Number]) -> Number:
    """Return the value that nine of ten values do not exceed."""
    ordered = sorted(values)
    return ordered[int(0.9 * (len(ordered) - 1))]


def hold_out(
    samples: int, *, stratify: str | None = None, parts: Sequence[str] = ("validation", "test")
) -> tuple[dict[str, Any], str]:
    """Return the division of N samples, and the reason for it."""
    share = 0.1 if samples >= 50_000 else 0.15 if samples >= 2_000 else 0.2
    purposes = {"validation": "to watch during training", "test": "for the final test"}
    split: dict[str, Any] = dict.fromkeys(parts, share)
    why = " and ".join(f"{share:.0%} {purposes[part]}" for part in parts)
    if stratify is None:
        return split, why
    return {**split, "stratify": stratify}, f"{why}; `{stratify}` has the same distribution in all parts"


def patient_epochs(samples: int, batch: int, least: int) -> int:
    """Return the number of epochs without improvement after which training ends: at least 150 steps.

    Few samples make few steps per epoch, and their accuracy is perfect or at chance long before the loss is low.
    """
    return max(least, ceil(LEAST_STEPS / ceil(samples / batch)))


def most_epochs(samples: int, patience: int) -> int:
    """Return a number of epochs after which early stopping has mostly ended the training."""
    return 30 if samples > 20_000 else 60 if samples > 2_000 else max(120, 6 * patience)


def class_monitor(samples: int, batch: int) -> str:
    """Return what decides when the training of a classifier of texts or rows ends: its loss or its accuracy.

    The accuracy is that of the most frequent class at first, while the loss already falls. If epochs have few steps,
    this takes many epochs, after which the training would end.
    """
    return "loss" if ceil(samples / batch) < FEW_STEPS else "accuracy"


def training(
    *, monitor: str, epochs: int, patience: int, space: SearchSpace, learning_rate: float = 0.001
) -> list[str]:  # fmt: skip
    """Return `solver`, `train` and `search`: a learning rate that falls on a plateau of `monitor`, early stopping."""
    space.field("solver.learning_rate.schedule", {"low": 0.0003, "high": 0.01, "log": True})
    space.field("solver.weight_decay", {"low": 0.001, "high": 0.3, "log": True})
    plateau = {
        "type": "ReduceLROnPlateau", "schedule": learning_rate, "factor": 0.3, "patience": max(2, patience // 3),
        "monitor": monitor, "threshold": 0.0,
    }  # fmt: skip
    return [
        "",
        "solver:",
        *entry("type", "AdamW", "works without tuning on most data", 2),
        *entry("weight_decay", 0.01, "", 2),
        *entry("learning_rate", plateau, f"lower once the validation {monitor} no longer improves", 2),
        "",
        "train:",
        *entry("max_epochs", epochs, "an upper bound: early stopping may end the run earlier", 2),
        *entry("monitor", monitor, "on the validation data: it decides which weights are the best", 2),
        *entry("early_stopping", {"patience": patience}, f"ends after {patience} epochs without a better one", 2),
        *space.search_lines(),
    ]


def class_losses() -> list[str]:
    """Return `losses` and `metrics` of a net whose output `logits` has a value for each class."""
    return [
        *entry("losses", [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}]),
        *entry("metrics", [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}]),
    ]
