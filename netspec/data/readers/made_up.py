"""Made-up samples: each a function of the seed and its number, with something in it that a net can learn."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Dataset
from netspec.data.files import fingerprint
from netspec.data.order import sample_generator, sample_generators
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.data.base import Array, Samples
    from netspec.data.sources.synthetic import MadeField, Synthetic

_SAMPLE, _PATTERN, _MAP = 2**32, 2**33, 2**34  # stages that no transform has
_CELLS = (64, 8, 8, 4)
"""How many values a pattern has along each axis, by the number of axes: patterns of images are coarse."""
_MOST_WEIGHTS = 2**26
_TURNS = 1.0


class MadeUp(Dataset):
    """The samples of a source `synthetic`."""

    def __init__(self, spec: Synthetic, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._label = next((name for name, one in spec.fields.items() if one.is_label), "")
        self.fields = spec.known_fields()
        told = spec.model_dump(include={"fields", "task", "noise", "first", "number"})
        self.digest = fingerprint(json.dumps(told, sort_keys=True), str(seed))
        self._patterns = self._class_patterns() if spec.task == "classification" else {}
        self._weights = self._linear_map() if spec.task == "regression" else np.zeros(0, np.float32)

    def __len__(self) -> int:
        return self._spec.number

    def read(self, indices: Array) -> dict[str, Samples]:
        """The samples, made now."""
        made: dict[str, Array] = {
            name: np.empty((len(indices), *one.shape), one.type_name) for name, one in self._spec.fields.items()
        }
        generators = sample_generators(self._seed, 0, indices + self._spec.first, _SAMPLE)
        for row, generator in enumerate(generators):
            for name, value in self._sample(generator).items():
                made[name][row] = value
        return dict(made)

    def describe(self, index: int) -> str:
        """Its number."""
        return f"made-up sample {index + self._spec.first}"

    def _sample(self, generator: np.random.Generator) -> dict[str, Array]:
        fields, found = self._spec.fields, {}
        label = 0
        if self._label:
            label = int(generator.integers(fields[self._label].classes or 1))
            found[self._label] = np.array(label)
        inner: list[Array] = []
        for name, one in fields.items():
            if name == self._label:
                continue
            noise = generator.standard_normal(one.shape, np.float32)
            match self._spec.task:
                case "classification":
                    pattern = self._patterns[name][label][_spread(one.shape)]
                    noise = (pattern + self._spec.noise * noise) / np.sqrt(1 + self._spec.noise**2)
                case "spirals":
                    noise = self._arm(label, generator.random()) + self._spec.noise * noise
                case "regression" if len(inner) == len(fields) - 1:
                    exact = np.concatenate(inner) @ self._weights
                    noise = exact.reshape(one.shape) + self._spec.noise * noise
                case _:
                    inner.append(noise.reshape(-1))
            found[name] = scaled(one, noise)
        return found

    def _arm(self, label: int, uniform: float) -> Array:
        """A place on the arm of a class, evenly over the disc."""
        radius = np.sqrt(uniform)
        angle = 2 * np.pi * (label / (self._spec.fields[self._label].classes or 1) + _TURNS * radius)
        return np.array([radius * np.cos(angle), radius * np.sin(angle)])

    def _class_patterns(self) -> dict[str, Array]:
        """The values of each class in coarse cells, (classes, *cells), by field."""
        classes = self._spec.fields[self._label].classes or 1
        found = {}
        for number, (name, one) in enumerate(self._spec.fields.items()):
            cells = tuple(map(min, one.shape, (_cells(one.shape),) * len(one.shape)))
            drawn = [sample_generator(self._seed, 0, label, _PATTERN + number) for label in range(classes)]
            found[name] = np.stack([generator.standard_normal(cells, np.float32) for generator in drawn])
        return found

    def _linear_map(self) -> Array:
        """Weights (inputs, outputs), so scaled that outputs have a variance of about 1."""
        *inputs, output = (prod(one.shape) for one in self._spec.fields.values())
        if sum(inputs) * output > _MOST_WEIGHTS:
            raise InputError(
                "the linear map is too large",
                location=self._spec.where("fields"),
                path="fields",
                expected=f"at most {_MOST_WEIGHTS:,} weights",
                got=f"{sum(inputs):,} numbers for {output:,}",
            )
        generator = sample_generator(self._seed, 0, 0, _MAP)
        return generator.standard_normal((sum(inputs), output), np.float32) / np.float32(np.sqrt(sum(inputs)))


def _cells(shape: tuple[int, ...]) -> int:
    return _CELLS[min(len(shape), len(_CELLS)) - 1]


def _spread(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """The cell of a pattern that each place of a field is in."""
    most = _cells(shape)
    return np.ix_(*(np.arange(size) * min(size, most) // size for size in shape)) if shape else ()


def scaled(field: MadeField, normal: Array) -> Array:
    """Numbers of a standard normal distribution (about one, where there is something to learn) as those of a field."""
    if field.bounds is None:
        values = (field.mean or 0.0) + (1.0 if field.stddev is None else field.stddev) * normal
    else:
        low, high = field.bounds
        # The logistic function is the normal distribution's up to 0.01, and what it makes even is what it is given.
        values = low + (high - low) / (1 + np.exp(-1.702 * normal))
    if field.type_name.startswith("float"):
        return np.asarray(values)
    least, most = (np.iinfo(field.type_name).min, np.iinfo(field.type_name).max)
    if field.bounds is not None:
        most = min(most, int(np.ceil(field.bounds[1])) - 1)
    whole: Array = np.clip(np.floor(values) if field.bounds else np.round(values), least, most)
    return whole
