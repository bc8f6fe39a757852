"""Verify that an exported model computes what the net computes: run both and name the first layer that differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.errors import Location, RunError
from netspec.exchange.formats.onnx.messages import open_session
from netspec.exchange.numeric_diff import Arrays, OutputComparison, compare, gap_of
from netspec.exchange.operator_graph.graph import LoweredGraph
from netspec.graph.types import TensorType
from netspec.layers.states import Domain

Predict: TypeAlias = "Callable[[Arrays], Arrays]"

TOLERANCE = 1e-4
"""Largest difference allowed, relative to the largest magnitude of a result, or to 1 if that is larger.

Both sides compute in float32 and add in different orders: over the few thousand terms of a sum the rounding errors of
2⁻²⁴ each grow to about 1e-5 of the largest term.
"""


class Verifier:
    """Runs a model in onnxruntime and compares its outputs with those of `predict`.

    With the emitted `graph`, and `all_values`, which is like `predict` but returns every layer's output by the layer's
    name, an error names the first layer that differs.
    """

    def __init__(
        self,
        model: bytes | str | Path,
        predict: Predict,
        tolerance: float = TOLERANCE,
        *,
        graph: LoweredGraph | None = None,
        all_values: Predict | None = None,
    ) -> None:
        self._model = model if isinstance(model, bytes) else Path(model)
        self._session = open_session(self._model)
        self._predict, self._tolerance, self._graph, self._all_values = predict, tolerance, graph, all_values

    def __call__(self, inputs: Arrays, subject: str = "") -> OutputComparison:
        """Compare on these inputs; messages call them `subject`. Raises `RunError` if results differ too much."""
        return self.check(inputs, self._predict(inputs), subject)

    def check(self, inputs: Arrays, expected: Arrays, subject: str = "") -> OutputComparison:
        """Like a call, but compare with these expected results."""
        read = {info.name for info in self._session.get_inputs()}
        fed = {name: array for name, array in inputs.items() if name in read}
        names = [info.name for info in self._session.get_outputs()]
        theirs = dict(zip(names, _run(self._session, names, fed), strict=True))
        compared = compare(expected, theirs)
        wrong = {name: gap for name, gap in compared.gaps.items() if not gap.scaled <= self._tolerance}
        if wrong:
            layer, location = None, None
            if self._graph is not None and self._all_values is not None:
                ours = self._all_values(inputs)
                layer, location = _first_diverging(self._model, self._graph, ours, fed, self._tolerance)
            figures = ", ".join(f"{gap.relative} in `{name}`" for name, gap in wrong.items())
            raise RunError(
                "the exported model computes something else in onnxruntime"
                + (f"; the first layer to differ is `{layer}`" if layer else ""),
                location=location,
                expected=f"differences of at most {self._tolerance:g}",
                got=f"{figures}, for {subject}" if subject else figures,
                hint="nothing was written: unless the net makes that much of rounding errors, which a larger tolerance "
                "accepts, this is a defect of netspec or of onnxruntime, to be reported",
            )
        return compared


def _run(session: Any, names: list[str], inputs: Arrays) -> list[Any]:
    try:
        return list(session.run(names, dict(inputs)))
    except Exception as error:  # onnxruntime's error classes share no other base
        raise RunError("onnxruntime cannot run the exported model", got=str(error)) from error


def _first_diverging(
    exported: bytes | Path, graph: LoweredGraph, ours: Arrays, inputs: Arrays, tolerance: float
) -> tuple[str | None, Location | None]:
    """The first layer whose output differs: the model is run again with every layer's tensor as an output."""
    import onnx

    if isinstance(exported, bytes):
        model = onnx.load_from_string(exported)
    else:
        model = onnx.load(exported, load_external_data=False)
    output_names = {output.name for output in model.graph.output}
    node_of = {name: node for node in graph.nodes for name in node.outputs}
    layers = {layer: tensor for layer, tensor in graph.tensors.items() if layer in ours and tensor in node_of}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=tensor) for tensor in layers.values() if tensor not in output_names
    )
    probed: bytes | Path = model.SerializeToString()
    if isinstance(exported, Path):  # next to its weights
        probed = exported.with_name(f"{exported.name}.layers")
        probed.write_bytes(model.SerializeToString())
    results = _run(open_session(probed), list(layers.values()), inputs)
    if isinstance(probed, Path):
        probed.unlink()
    for (layer, tensor), array in zip(layers.items(), results, strict=True):
        if not gap_of(ours[layer], array).scaled <= tolerance:
            return layer, node_of[tensor].scope.location
    return None, None


def random_inputs(
    types: Mapping[str, TensorType], domains: Mapping[str, Domain], seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Random inputs: normally distributed floats, and integers in the range that the net takes."""
    random = np.random.default_rng(seed)
    inputs: dict[str, NDArray[Any]] = {}
    for name, kind in types.items():
        if kind.dtype.is_float:
            inputs[name] = random.standard_normal(kind.shape).astype(str(kind.dtype))
        else:
            domain = domains.get(name)
            low, high = (domain.low, domain.high) if domain else (0, 2)
            inputs[name] = random.integers(low, high, kind.shape).astype(str(kind.dtype))
    return inputs
