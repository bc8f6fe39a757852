"""Reader of columns of type `categorical`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.column import Column
from netspec.data.tabular.encodings import CategoricalEncoding
from netspec.errors import InputError, SettingHint, did_you_mean, listing

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.columns.base import ColumnSetting
    from netspec.data.tabular.columns.categorical import Categorical
    from netspec.data.tabular.row_errors import BlockFaults

_ABSENT, _BAD = -1, -2


class CategoricalColumn(Column):
    """Reads names as int32: indices into the names seen so far, in their order; −1 for a missing one."""

    def __init__(self, spec: Categorical, setting: ColumnSetting) -> None:
        super().__init__(setting)
        self._spec = spec
        self._mode = spec.output_mode or ("int" if setting.is_label else "one_hot")
        self.vector = self._mode == "one_hot"
        self._name_indices: dict[str, int] = {}
        """The names seen so far."""
        self._counts = np.zeros(0, np.int64)
        self._other = int(spec.unknown == "index")
        """Number of indices for unknown names: the first, or none."""
        self._vocabulary: tuple[str, ...] = tuple(spec.vocabulary or ())
        self._fill: str | None = None
        """The most frequent name of the training split."""
        self._rows_without = 0
        self._untrained: list[int] = []
        """Indices that no row of the training split has, so that a net learns nothing about them."""
        fixed = spec.vocabulary is not None
        if setting.learned is not None:
            names = ["vocabulary"] * (not fixed) + ["fill"] * (spec.missing == "most_frequent")
            learned = self.learned_values(*names) or {}
            self._vocabulary = self._vocabulary if fixed else tuple(learned["vocabulary"])
            self._fill = learned.get("fill")
            self._untrained = learned.get("untrained", [])
        self._finished_learning = fixed or setting.learned is not None
        self._index = {name: self._other + index for index, name in enumerate(self._vocabulary)}
        self._final = np.zeros(0, np.int32)
        """Index of each name seen, and at the end that of a missing one; −1 for a vector of zeros."""

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        texts, text_indices = cells.distinct()
        names = [self._spec.replace.get(text, text) for text in texts] if self._spec.replace else texts
        values = np.array([self._value(name) for name in names], np.int32)
        lost = np.flatnonzero(values == _ABSENT)
        if len(lost) and self._spec.missing == "error":
            fields = "`missing: most_frequent`, `missing: drop`, or `missing: unknown`"
            expected = "a label in every row" if self.setting.is_target else "a category"
            self.add_absent(
                faults, np.flatnonzero(np.isin(text_indices, lost)), cells, expected=expected,
                training=None if self.setting.is_label else fields,
            )  # fmt: skip
        for row in np.flatnonzero(values == _BAD).tolist():
            self._report_unknown(names[row], np.flatnonzero(text_indices == row), faults)
        return values[text_indices]

    def _value(self, name: str) -> int:
        if (not name or name.lower() in self.setting.absent) and name not in self._index:
            return _ABSENT
        if self._finished_learning and not self._other and name not in self._index:
            return _BAD
        return self._name_indices.setdefault(name, len(self._name_indices))

    def _report_unknown(self, name: str, rows: Array, faults: BlockFaults) -> None:
        kind = "class" if self.setting.is_target else "category"
        whose = f"a declared {kind}" if self._spec.vocabulary is not None else f"a {kind} of the training split"
        if self.setting.origin.is_predicted:
            whose = f"a known category of {self.title}"
        hint = did_you_mean(name, self._vocabulary)
        if not hint and not self.setting.is_label:
            hint = SettingHint("`unknown: index` gives unknown categories an index of their own")
        message = f"{self.shown(name)} is not {whose}"
        faults.add_value(rows, self.index, message, expected=f"one of {listing(self._vocabulary)}", hint=hint)

    def drops(self, values: Array) -> Array | None:
        return values == _ABSENT if self._spec.missing == "drop" else None

    def tally(self, values: Array) -> None:
        if self.setting.learned is None or self._other:
            counts = np.bincount(values[values >= 0], minlength=max(len(self._name_indices), len(self._counts)))
            counts[: len(self._counts)] += self._counts
            self._counts = counts
            self._rows_without += int((values == _ABSENT).sum())

    def finish_learning(self, reread: Callable[[], Iterator[Array]]) -> None:
        if self.setting.learned is None:
            self._learn()
        self._finished_learning = True
        self._index = {name: self._other + index for index, name in enumerate(self._vocabulary)}
        if self.setting.learned is None and self._replaces_untrained:
            self._untrained = self._find_untrained()
        self._remap()

    @property
    def _replaces_untrained(self) -> bool:
        """Whether untrained indices are replaced: not in labels, nor in integers that may be the labels of a loss."""
        return not self.setting.is_label and (self._mode == "one_hot" or bool(self._other))

    def _find_untrained(self) -> list[int]:
        counts = np.zeros(len(self._name_indices) + 1, np.int64)
        counts[: len(self._counts)] = self._counts
        counts[-1] = self._rows_without
        rows = np.bincount(self._indices_of_seen(), counts, minlength=self._other + len(self._vocabulary))
        return np.flatnonzero(rows == 0).tolist()

    def _learn(self) -> None:
        counted = [
            (name, int(count)) for name, count in zip(self._name_indices, self._counts.tolist(), strict=False) if count
        ]
        counted.sort(key=lambda entry: (-entry[1], entry[0]))
        if self._spec.missing == "most_frequent" and not counted:
            raise InputError(
                f"all values of {self.title} are missing, so it has no most frequent category",
                expected="a column with values, or `missing: unknown`",
            )
        self._fill = counted[0][0] if counted else None
        if self._spec.vocabulary is None:
            most = None if self._spec.max_tokens is None else self._spec.max_tokens - 1
            frequent = [name for name, count in counted[:most] if count >= (self._spec.min_count or 1)]
            self._vocabulary = tuple(sorted(frequent))

    def _remap(self) -> None:
        """Update the index of each name seen so far; names that are not in the vocabulary are unknown."""
        replaced = self._replaced
        self._final = np.array([replaced.get(index, index) for index in self._indices_of_seen()], np.int32)

    def _indices_of_seen(self) -> list[int]:
        """Return the vocabulary index of each name seen so far, and at the end the index for a missing name."""
        missing = self._fill_index if self._spec.missing == "most_frequent" else 0
        return [*(self._index.get(name, 0) for name in self._name_indices), missing]

    @property
    def _replaced(self) -> dict[int, int]:
        """The replacement of each untrained index: −1 for a vector of zeros, or the index of the most frequent name."""
        return dict.fromkeys(self._untrained, -1 if self.vector else self._fill_index)

    @property
    def _fill_index(self) -> int:
        return 0 if self._fill is None else self._index.get(self._fill, 0)

    @property
    def unknown_values(self) -> Mapping[str, int]:
        counted = zip(self._name_indices, self._counts.tolist(), strict=False)
        return {name: count for name, count in counted if count and name not in self._index}

    @property
    def learned(self) -> dict[str, Any]:
        learned: dict[str, Any] = {} if self._spec.vocabulary is not None else {"vocabulary": list(self._vocabulary)}
        if self._untrained:
            learned["untrained"] = self._untrained
        uses_fill = self._spec.missing == "most_frequent" or (self._untrained and not self.vector)
        return {**learned, "fill": self._fill} if uses_fill and self._fill is not None else learned

    @property
    def width(self) -> int:
        return self._other + len(self._vocabulary) if self._mode == "one_hot" else 1

    @property
    def learns_width(self) -> bool:
        return self._mode == "one_hot" and self._spec.vocabulary is None

    @property
    def dtype(self) -> str:
        return "float32" if self._mode == "one_hot" else "int32"

    @property
    def classes(self) -> tuple[str, ...] | None:
        return None if self._other else self._vocabulary

    def encode(self, values: Array) -> Array:
        if len(self._final) <= len(self._name_indices):  # names seen after the categories were learned
            self._remap()
        positions = self._final[values]  # −1 selects the last element
        if self._mode == "int":
            return positions[:, None]
        one_hot = np.zeros((len(values), self.width), np.float32)
        one_hot[np.arange(len(values)), positions] = positions >= 0  # −1 sets the last element, to 0
        return one_hot

    def encoding(self) -> CategoricalEncoding:
        replaced = self._replaced
        indices = {name: replaced.get(index, index) for name, index in self._index.items()}
        for written, meant in (self._spec.replace or {}).items():
            if meant in self._index:
                indices[written] = indices[meant]
        names = tuple(indices)
        default = replaced.get(0, 0) if self._other else -1
        missing = indices.get(self._fill or "", default) if self._spec.missing == "most_frequent" else default
        for text in ("", *self.setting.absent):
            for spelled in (text, text.upper(), text.capitalize()):
                indices.setdefault(spelled, missing)
        width = self.width if self.vector else 0
        return CategoricalEncoding(
            self.name, indices, names, default, width, self._spec.missing, self.missing_texts,
            is_open=bool(self._other),
        )  # fmt: skip
