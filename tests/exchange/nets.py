"""Helpers for exchange tests: from YAML-like data to graphs, weights and outputs, by the interpreter alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from netspec.compile import NetGraph, build
from netspec.graph.graph import Graph
from netspec.schema.load import load_net
from netspec.schema.specs.net import NetSpec
from tests.interpret import evaluate

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Net:
    """A net with weights."""

    spec: NetSpec
    weights: Mapping[str, np.ndarray] | None = None

    @classmethod
    def of(cls, source: Any, weights: Mapping[str, np.ndarray] | None = None) -> Net:
        return cls(load_net(source), weights)

    @cached_property
    def form(self) -> NetGraph:
        return build(self.spec, 2, training=False, with_losses=False)

    @cached_property
    def states(self) -> Arrays:
        """The given weights, or random ones; statistics, such as variances, are positive."""
        if self.weights is not None:
            return dict(self.weights)
        random = np.random.default_rng(7)
        return {
            name: (
                random.uniform(0.1 if info.role == "statistic" else -0.6, 0.6, info.value.shape)
                if info.value.dtype.is_float
                else random.integers(0, 4, info.value.shape)
            ).astype(str(info.value.dtype))
            for name, info in self.form.builder.states.items()
        }

    def graph(self, size: int) -> Graph:
        if size not in self._graphs:
            form = build(self.spec, size, training=False, with_losses=False)
            self._graphs[size] = Graph(form.outputs, named=form.values)
        return self._graphs[size]

    @cached_property
    def _graphs(self) -> dict[int, Graph]:
        return {}

    def predict(self, inputs: Mapping[str, Any]) -> Arrays:
        graph = self.graph(len(next(iter(inputs.values()))))
        return dict(zip(graph.outputs, evaluate(list(graph.outputs.values()), {**self.states, **inputs}), strict=True))

    def layers(self, inputs: Mapping[str, Any]) -> Arrays:
        """Return the output of every layer."""
        size = len(next(iter(inputs.values())))
        values = build(self.spec, size, training=False, with_losses=False).values
        return dict(zip(values, evaluate(list(values.values()), {**self.states, **inputs}), strict=True))


def net_data(*layers: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a net file as Python data; by default, its input is a small image."""
    return {"netspec": 1, "inputs": inputs or {"image": {"shape": [2, 8, 8]}}, "layers": list(layers), **more}


LENET = Path(__file__).with_name("small_lenet.yaml")
