"""Which parameters Muon moves as matrices in Keras: those of two axes there, but for those that AdamW moves here."""

from __future__ import annotations

import re
from typing import Any

from netspec.exchange.keras_export.placing import placed
from netspec.exchange.keras_export.writer import Writer

MATRIX = 2
"""Axes of a matrix."""


def excluded(solver: Any, net: Writer) -> dict[str, Any]:
    """The fields that say it: expressions of the paths of variables. What Keras moves otherwise is noted."""
    trained, matrices = net.trained(), matrices_of(solver, net)
    others = [name for name, shape in trained.items() if solver.is_matrix(name, shape) != (name in matrices)]
    if others:
        net.note(
            f"Keras's Muon moves {', '.join(f'`{name}`' for name in others)} by AdamW, whose states start afresh: "
            f"matrices are its variables of two axes alone, as they lie here; those of one name in a layer move alike"
        )
    return {"exclude_embeddings": False, "exclude_layers": list(_by_expression(solver, net)[1])}


def matrices_of(solver: Any, net: Writer) -> set[str]:
    """Names of the parameters that Keras moves as matrices."""
    expressions, moved = _by_expression(solver, net)
    return {name for name, expression in expressions.items() if expression not in moved}


def _by_expression(solver: Any, net: Writer) -> tuple[dict[str, str], dict[str, None]]:
    """For each parameter of two axes in Keras what its path is told by, and the expressions of those that AdamW moves.

    That is the layer where its parameters move alike, else the last name within it too; those of one name, such as both
    kernels of a Bidirectional, move alike.
    """
    shapes = net.trained()
    moves: dict[str, dict[str, bool]] = {}
    for name, layer, shape in placed(net):
        if len(shape) == MATRIX:
            alike = sorted(shape) == sorted(shapes[name])  # a Parameter is one row there
            moves.setdefault(layer.name, {})[name] = alike and solver.is_matrix(name, shapes[name])
    found: dict[str, str] = {}
    moved: dict[str, None] = {}
    for layer_name, own in moves.items():
        path = f"^{re.escape(layer_name)}/"
        for name, is_matrix in own.items():
            last = name.rpartition("/")[2]
            found[name] = path if len(set(own.values())) == 1 else f"{path}(.*/)?{last}$"
            moved |= {} if is_matrix else {found[name]: None}
    return found, moved
