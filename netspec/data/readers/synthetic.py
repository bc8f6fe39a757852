"""Synthetic samples: each a function of the seed and its index, with structure that a net can learn."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Array, Dataset, Samples
from netspec.data.files import fingerprint
from netspec.data.random import sample_generator, sample_generators
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.data.sources.synthetic import MadeField, Synthetic

_SAMPLE, _PATTERN, _MAP = 2**32, 2**33, 2**34  # stages that no transform has
_CELLS = (64, 8, 8, 4)
"""Number of values of a pattern along each axis, by the number of axes: patterns of images are coarse."""
_MAX_WEIGHTS = 2**26
_TURNS = 1.0


class MadeUp(Dataset):
    """The samples of a source `synthetic`."""

    def __init__(self, spec: Synthetic, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._label = next((name for name, field in spec.fields.items() if field.is_label), "")
        self.fields = spec.known_fields()
        facts = spec.model_dump(include={"fields", "task", "noise", "first", "number"})
        self.digest = fingerprint(json.dumps(facts, sort_keys=True), str(seed))
        self._patterns = self._class_patterns() if spec.task == "classification" else {}
        self._weights = self._linear_map() if spec.task == "regression" else np.zeros(0, np.float32)

    def __len__(self) -> int:
        return self._spec.number

    def read(self, indices: Array) -> dict[str, Samples]:
        """Generate the samples."""
        fields, number = self._spec.fields, len(indices)
        normal = {
            name: np.empty((number, *field.shape), np.float32) for name, field in fields.items() if name != self._label
        }
        rows = {name: values.reshape(number, -1) for name, values in normal.items()}
        labels, uniform = np.zeros(number, np.int64), np.zeros(number)
        classes = fields[self._label].classes if self._label else None
        generators = sample_generators(self._seed, 0, indices + self._spec.first, _SAMPLE)
        for row, generator in enumerate(generators):
            labels[row] = generator.integers(classes) if classes else 0
            for values in rows.values():
                generator.standard_normal(out=values[row], dtype=np.float32)
            uniform[row] = generator.random()
        arrays = {
            name: scaled(fields[name], values) for name, values in self._learnable(normal, labels, uniform).items()
        }
        if self._label:
            arrays[self._label] = labels
        return {name: arrays[name].astype(field.type_name, copy=False) for name, field in fields.items()}

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return f"synthetic sample {index + self._spec.first}"

    def _learnable(self, normal: dict[str, Array], labels: Array, uniform: Array) -> dict[str, Array]:
        """Turn standard normal values (N, …) of each field into samples with a relation to learn."""
        noise = np.float32(self._spec.noise)
        match self._spec.task:
            case "classification":
                scale = np.sqrt(1 + noise**2)
                patterns = {name: self._patterns[name][labels][_spread(array.shape)] for name, array in normal.items()}
                return {name: (patterns[name] + noise * array) / scale for name, array in normal.items()}
            case "spirals":
                return {name: self._arms(labels, uniform) + noise * array for name, array in normal.items()}
            case "regression":
                *inner, (name, output) = normal.items()
                inputs = np.concatenate([values.reshape(len(output), -1) for _, values in inner], axis=1)
                # Row by row: rounding in a product of the full batch would depend on the batch size.
                exact = np.stack([row @ self._weights for row in inputs]).reshape(output.shape)
                return {**normal, name: exact + noise * output}
        return normal

    def _arms(self, labels: Array, uniform: Array) -> Array:
        """Return positions on the arms of the classes, evenly spread over the disc."""
        radius = np.sqrt(uniform)
        angle = 2 * np.pi * (labels / (self._spec.fields[self._label].classes or 1) + _TURNS * radius)
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    def _class_patterns(self) -> dict[str, Array]:
        """Return the values of each class in coarse cells, (classes, *cells), by field."""
        classes = self._spec.fields[self._label].classes or 1
        patterns = {}
        for number, (name, field) in enumerate(self._spec.fields.items()):
            cells = tuple(map(min, field.shape, (_cells(field.shape),) * len(field.shape)))
            drawn = [sample_generator(self._seed, 0, label, _PATTERN + number) for label in range(classes)]
            patterns[name] = np.stack([generator.standard_normal(cells, np.float32) for generator in drawn])
        return patterns

    def _linear_map(self) -> Array:
        """Return weights (inputs, outputs), scaled so that outputs have a variance of about 1."""
        *inputs, output = (prod(field.shape) for field in self._spec.fields.values())
        if sum(inputs) * output > _MAX_WEIGHTS:
            raise InputError(
                "the linear map is too large",
                location=self._spec.where("fields"),
                path="fields",
                expected=f"at most {_MAX_WEIGHTS:,} weights",
                got=f"{sum(inputs):,} numbers for {output:,}",
            )
        generator = sample_generator(self._seed, 0, 0, _MAP)
        return generator.standard_normal((sum(inputs), output), np.float32) / np.float32(np.sqrt(sum(inputs)))


def _cells(shape: tuple[int, ...]) -> int:
    return _CELLS[min(len(shape), len(_CELLS)) - 1]


def _spread(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Return the cell of a pattern for each element of a field (N, …), as indices into patterns (N, *cells)."""
    most = _cells(shape[1:])
    return np.ix_(np.arange(shape[0]), *(np.arange(size) * min(size, most) // size for size in shape[1:]))


def scaled(field: MadeField, normal: Array) -> Array:
    """Convert (approximately) standard normal values to the distribution of a field."""
    if field.bounds is None:
        values = (field.mean or 0.0) + (1.0 if field.stddev is None else field.stddev) * normal
    else:
        low, high = field.bounds
        # The logistic function approximates the normal distribution to 0.01, and makes it uniform.
        values = low + (high - low) / (1 + np.exp(-1.702 * normal))
    if field.type_name.startswith("float"):
        return np.asarray(values)
    least, most = (np.iinfo(field.type_name).min, np.iinfo(field.type_name).max)
    if field.bounds is not None:
        most = min(most, int(np.ceil(field.bounds[1])) - 1)
    integers: Array = np.clip(np.floor(values) if field.bounds else np.round(values), least, most)
    return integers
