"""States that are found in the training data before the first step: means, variances."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from netspec.compile import Compiler, ProgramKind
from netspec.data.loader import Loader
from netspec.errors import InputError, Problem
from netspec.graph.graph import topological_order
from netspec.graph.ops.source import State
from netspec.layers.states import Adapted, Totals


def adapt(compiler: Compiler, loader: Loader, known: Collection[str] = ()) -> list[str]:
    """Set the states that layers adapt to the training data; return the names of these layers.

    Samples come once each, in the order of the source, transformed as in the first epoch; totals are merged in float64,
    so the memory needed is that of a batch. A layer behind another one that is adapted waits for it, which takes a
    further pass. Layers whose states are all `known` are left out. Raises `InputError` where a value is not finite.
    """
    declared = compiler.net_graph(ProgramKind.ADAPT, 1).builder.adapted if compiler.adapts else {}
    waiting = {name: one for name, one in declared.items() if not set(one.states) <= set(known)}
    found = list(waiting)
    while waiting:
        open_states = {state for one in waiting.values() for state in one.states}
        ready = [name for name, one in waiting.items() if not open_states & _read(one)]
        for name, totals in _totals(compiler, loader, ready).items():
            values = totals.values()
            if not all(np.isfinite(one).all() for one in values):
                raise InputError(_not_finite(compiler, name))
            for state, value in zip(waiting.pop(name).states, values, strict=True):
                compiler.states.assign(state, value.astype(str(compiler.info[state].value.dtype)))
    return found


def _read(one: Adapted) -> set[str]:
    """The states that what is computed of a batch depends on."""
    return {node.op.label for node in topological_order(one.results) if isinstance(node.op, State)}


def _totals(compiler: Compiler, loader: Loader, names: list[str]) -> dict[str, Totals]:
    """The totals of these layers over one pass."""
    found: dict[str, Totals] = {}
    for batch in loader.one_pass(shared=False):
        results = compiler.program(ProgramKind.ADAPT, len(batch))(batch.inputs)
        declared = compiler.net_graph(ProgramKind.ADAPT, len(batch)).builder.adapted
        for name in names:
            one = declared[name]
            totals = one.totals(*(results[f"{name}/{index}"] for index in range(len(one.results))))
            found[name] = found[name].merged(totals) if name in found else totals
    return found


def _not_finite(compiler: Compiler, name: str) -> Problem:
    layer = next((one for one in compiler.spec.layers if one.name == name.partition("/")[0]), None)
    return Problem(
        f"layer `{name}`: what it finds in the training data is not finite",
        layer.where() if layer is not None else None, f"layers.{name}", expected="finite numbers in what it reads",
        hint="look at the layers in front of it",
    )  # fmt: skip
