"""Errors of a program's run, and their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.errors import Problem, RunError
from netspec.graph.graph import topological_order
from netspec.graph.op import as_tuple
from netspec.graph.types import TensorType
from netspec.graph.value import Node, in_scope


class NonFiniteLoss(Exception):
    """The guard of a program is not finite; no state was written."""

    def __init__(self, node: Node | None, state: str | None, late: int = 0) -> None:
        super().__init__("the loss is not finite")
        self.node = node
        """The first node with a result that is not finite although its operands are; an input's node if the data are
        not finite.
        """
        self.state = state
        """Name of a state that was not finite before the step."""
        self.late = late
        """Number of runs that were started since; none of them wrote states."""


def first_inside(node: Node, operands: Sequence[Any]) -> Node:
    """The first part of a fused node with a result that is not finite, as computed by the reference kernels.

    `operands` are the finite arrays that the node reads. Returns the node itself if the reference finds no such result.
    """
    import numpy as np

    arrays = dict(zip(node.inputs, operands, strict=True))
    with in_scope(node.scope), np.errstate(all="ignore"):
        for part in topological_order(as_tuple(node.op.decompose(*node.inputs)), stop=frozenset(node.inputs)):
            results = as_tuple(part.op.forward(np, *(arrays[value] for value in part.inputs)))
            if not all(np.isfinite(result).all() for result in results):
                return part
            arrays.update(zip(part.outputs, results, strict=True))
    return node


class OutOfMemory(RunError):
    """A device has less memory than is needed at once."""


def input_problems(expected: Mapping[str, TensorType], arrays: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each input that is missing, or has the wrong shape or an incompatible type."""
    import numpy as np

    problems = []
    for name, kind in expected.items():
        if name not in arrays:
            problems.append(Problem(f"the input `{name}` is missing", expected=str(kind)))
            continue
        shape, dtype = np.shape(arrays[name]), np.asarray(arrays[name]).dtype
        if shape != kind.shape:
            message = f"the input `{name}` has the wrong shape"
            problems.append(Problem(message, expected=str(list(kind.shape)), got=str(list(shape))))
        elif not np.can_cast(dtype, str(kind.dtype), "same_kind"):
            message = f"the input `{name}` has another type"
            problems.append(Problem(message, expected=str(kind.dtype), got=str(dtype)))
    return problems


def kernel_failure(node: Node | None, error: Exception) -> RunError:
    """The error of a kernel for the user: the layer and its line, the op, its operands."""
    if node is None:
        return RunError(f"a state could not be written: {error}")
    scope = node.scope
    where = f"layer `{scope.layer}` ({scope.kind}): " if scope.layer else ""
    phase = "" if scope.phase == "forward" else f" ({scope.phase})"
    operands = ", ".join(str(value.type) for value in node.inputs)
    reason = str(error) or type(error).__name__
    return RunError(
        Problem(f"{where}{node.op.name}{phase} failed: {reason}", scope.location, notes=(f"operands: {operands}",))
    )
