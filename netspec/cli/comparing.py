"""Two models on the same random samples."""

from __future__ import annotations

from collections.abc import Mapping

from netspec.compile import Purpose
from netspec.exchange.gaps import Comparison, compare
from netspec.exchange.onnx_verify import random_inputs
from netspec.train.model import Model

SAMPLES = 2
"""Random samples that both compute."""


def compare_models(
    one: Model, two: Model, names: Mapping[str, str] | None = None, seed: int = 0
) -> tuple[Comparison | None, str]:
    """How far outputs are apart, by their names in the first model, or why that can't be said.

    Inputs and outputs go by name where both have the same names (`names` says what layers of the first are called in
    the second), else by order.
    """
    names = names or {}
    graphs = [side.compiler.graph(Purpose.PREDICT, SAMPLES) for side in (one, two)]
    given, wanted = ({name: value.type for name, value in graph.inputs().items()} for graph in graphs)
    if given != wanted and list(given.values()) != list(wanted.values()):
        return None, "their inputs differ"
    ours, theirs = (list(graph.outputs) for graph in graphs)
    if len(ours) != len(theirs):
        return None, "they have different numbers of outputs"
    inputs = random_inputs(given, one.compiler.domains, seed)
    others = inputs if given == wanted else dict(zip(wanted, inputs.values(), strict=True))
    first, second = one.predict(inputs), two.predict(others)
    pairs = {name: names.get(name, name) for name in ours}
    if set(pairs.values()) != set(theirs):
        pairs = dict(zip(ours, theirs, strict=True))
    return compare(first, {name: second[other] for name, other in pairs.items()}), ""
