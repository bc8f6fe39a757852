"""Build a layer, loss or metric for given arrays, and compute it with reference code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import netspec.layers  # noqa: F401  registers the classes
from netspec.graph.autodiff import gradients
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, in_scope
from netspec.layers.base import Builder, LayerSpec
from netspec.schema.specs.kinds import LAYERS, LOSSES, METRICS
from netspec.schema.specs.spec import Registry
from tests.interpret import evaluate


@dataclass
class Applied:
    """A layer, loss or metric with its inputs. The precision is float64 unless an array is float32."""

    spec: Any
    net: Builder
    inputs: list[Value]
    outputs: tuple[Value, ...]
    feeds: dict[str, Any]

    @property
    def y(self) -> np.ndarray:
        return self.all[0]

    @property
    def all(self) -> list[np.ndarray]:
        return evaluate(self.outputs, self.feeds)

    @property
    def updates(self) -> dict[str, np.ndarray]:
        """New values of states, by their names within the layer."""
        actual = evaluate(list(self.net.updates.values()), self.feeds)
        return {label.removeprefix("it/"): array for label, array in zip(self.net.updates, actual, strict=True)}

    def result(self) -> float:
        """Return the result of a metric that is a single number."""
        return float(self.figure())

    def figure(self) -> Any:
        """Return the result of a metric."""
        return self.spec.result(*(self.spec.collect(*self.all) if self.spec.collects else self.all))

    def gradient(self, dy: np.ndarray, *names: str) -> list[np.ndarray]:
        """Return the gradients by the inputs, or by the states `names`, for the gradient `dy` of the output."""
        wrt = [self.net.states[f"it/{name}"].value for name in names] if names else self.inputs
        y = self.outputs[0]
        weights = self.net.input("dy", y.type)
        actual = gradients(ReduceSum()(y * weights), wrt)
        return evaluate(actual, {**self.feeds, "dy": dy.astype(str(y.dtype))})


def _apply(registry: Registry[Any], fields: str | dict[str, Any], inputs: tuple[Any, ...], training: bool,
           states: Mapping[str, Any], rng: tuple[int, int, int], weight: Any = None,
           mask: Any = None) -> Applied:  # fmt: skip
    arrays = [np.asarray(x) for x in inputs]
    single = any(x.dtype == np.float32 for x in arrays)
    builder = Builder(training, DType.FLOAT32 if single else DType.FLOAT64)
    spec = registry.parse(fields)
    values = [builder.input(f"x{i}", TensorType(x.shape, DType(str(x.dtype)))) for i, x in enumerate(arrays)]
    feeds: dict[str, Any] = {f"x{i}": x for i, x in enumerate(arrays)}
    beside: dict[str, Value | None] = {"weight": None, "mask": None}
    for name, array in (("weight", weight), ("mask", mask)):
        if array is not None:
            feeds[name] = np.asarray(array)
            beside[name] = builder.input(name, TensorType(feeds[name].shape, DType(str(feeds[name].dtype))))
    with in_scope(builder.enter(spec, "it", (beside["mask"],), beside["weight"])):
        outputs = spec.call(builder, *values) if isinstance(spec, LayerSpec) else spec.build(builder, *values)
    for name, state in builder.states.items():
        initial = states.get(name.removeprefix("it/"))
        if initial is None:
            initial = state.initial.sample(1, name, state.value.shape, str(builder.dtype))
        feeds[name] = np.asarray(initial, str(builder.dtype))
        assert feeds[name].shape == state.value.shape
    feeds[RNG_INPUT] = np.array(rng, np.int64)
    return Applied(spec, builder, values, outputs if isinstance(outputs, tuple) else (outputs,), feeds)


def layer(fields: str | dict[str, Any], *inputs: Any, training: bool = False, rng: tuple[int, int, int] = (1, 1, 0),
          mask: Any = None, **states: Any) -> Applied:  # fmt: skip
    """Apply a layer to inputs; `mask` is that of the first, `states` are values of parameters (others are random)."""
    return _apply(LAYERS, fields, inputs, training, states, rng, mask=mask)


def loss(fields: str | dict[str, Any], *operands: Any, weight: Any = None, mask: Any = None) -> Applied:
    """Apply a loss to a prediction and its target, with the weights of samples and the mask of the prediction."""
    return _apply(LOSSES, fields, operands, True, {}, (1, 1, 0), weight, mask)


def metric(fields: str | dict[str, Any], *operands: Any, weight: Any = None, mask: Any = None) -> Applied:
    """Return the totals of a metric over one batch."""
    return _apply(METRICS, fields, operands, False, {}, (1, 1, 0), weight, mask)
