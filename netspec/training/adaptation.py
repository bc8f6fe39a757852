"""Statistics that layers compute from the training data before the first step, such as means and variances."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from netspec.compile import Compiler, ProgramKind
from netspec.data.loader import Loader
from netspec.errors import InputError, Problem
from netspec.graph.graph import topological_order
from netspec.graph.ops.source import State
from netspec.layers.states import Adapted, Totals


def adapt(compiler: Compiler, loader: Loader, present: Collection[str] = ()) -> list[str]:
    """Set the states that layers adapt to the training data; return the names of these layers.

    Each sample is read once, in the order of the source, transformed as in the first epoch. Totals are merged in
    float64 after every batch. A layer that reads the output of another adapted layer needs a further pass. Layers whose
    states are all `present` are left out. Raises `InputError` if a value is not finite.
    """
    declared = compiler.net_graph(ProgramKind.ADAPT, 1).builder.adapted if compiler.adapts else {}
    waiting = {name: adapted for name, adapted in declared.items() if not set(adapted.states) <= set(present)}
    layers = list(waiting)
    while waiting:
        missing_states = {state for adapted in waiting.values() for state in adapted.states}
        ready = [name for name, adapted in waiting.items() if not missing_states & _states_read(adapted)]
        for name, totals in _totals(compiler, loader, ready).items():
            values = totals.values()
            if not all(np.isfinite(value).all() for value in values):
                raise InputError(_not_finite(compiler, name))
            for state, value in zip(waiting.pop(name).states, values, strict=True):
                compiler.states.assign(state, value.astype(str(compiler.info[state].value.dtype)))
    return layers


def _states_read(adapted: Adapted) -> set[str]:
    """Return the states that the results of a batch depend on."""
    return {node.op.label for node in topological_order(adapted.results) if isinstance(node.op, State)}


def _totals(compiler: Compiler, loader: Loader, names: list[str]) -> dict[str, Totals]:
    """Return the totals of these layers over one pass."""
    merged: dict[str, Totals] = {}
    for batch in loader.one_pass(shared=False):
        results = compiler.program(ProgramKind.ADAPT, len(batch))(batch.inputs)
        declared = compiler.net_graph(ProgramKind.ADAPT, len(batch)).builder.adapted
        for name in names:
            adapted = declared[name]
            totals = adapted.totals(*(results[f"{name}/{index}"] for index in range(len(adapted.results))))
            merged[name] = merged[name].merged(totals) if name in merged else totals
    return merged


def _not_finite(compiler: Compiler, name: str) -> Problem:
    layer = next((layer for layer in compiler.spec.layers if layer.name == name.partition("/")[0]), None)
    return Problem(
        f"layer `{name}`: the statistics of the training data are not finite",
        layer.where() if layer is not None else None, f"layers.{name}", expected="finite inputs",
        hint="check the training data and the layers before this one",
    )  # fmt: skip
