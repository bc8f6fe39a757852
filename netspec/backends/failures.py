"""What a run of a program can fail with, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.errors import Problem, RunError
from netspec.graph.fused import several
from netspec.graph.graph import topological
from netspec.graph.types import TensorType
from netspec.graph.value import Node, in_scope


class NonFiniteLoss(Exception):
    """The guard of a program is not finite; no state was written. Says which node's result was the first such."""

    def __init__(self, node: Node | None, state: str | None, late: int = 0) -> None:
        super().__init__("the loss is not finite")
        self.node = node
        """The first node with a result that is not finite while its operands were; an input's node if it came with
        the data."""
        self.state = state
        """The name of a state that was not finite before the step."""
        self.late = late
        """How many runs that write states were begun since, and came to nothing."""


def first_inside(node: Node, operands: Sequence[Any]) -> Node:
    """Of the nodes that one stands for, the first with a result that is not finite, by the reference kernels.

    `operands` are the finite arrays that it reads. It is the node itself where the reference finds no such result.
    """
    import numpy as np

    known = dict(zip(node.inputs, operands, strict=True))
    with in_scope(node.scope), np.errstate(all="ignore"):
        for part in topological(several(node.op.decompose(*node.inputs)), stop=frozenset(node.inputs)):
            made = several(part.op.forward(np, *(known[value] for value in part.inputs)))
            if not all(np.isfinite(one).all() for one in made):
                return part
            known.update(zip(part.outputs, made, strict=True))
    return node


class OutOfMemory(RunError):
    """A device has not as much memory as is asked for at once."""


def input_problems(wanted: Mapping[str, TensorType], given: Mapping[str, Any]) -> list[Problem]:
    """Each wanted input that is missing, of another shape, or of a kind of numbers that would lose its meaning."""
    import numpy as np

    problems = []
    for name, kind in wanted.items():
        if name not in given:
            problems.append(Problem(f"the input `{name}` is missing", expected=str(kind)))
            continue
        shape, dtype = np.shape(given[name]), np.asarray(given[name]).dtype
        if shape != kind.shape:
            message = f"the input `{name}` has another shape"
            problems.append(Problem(message, expected=str(list(kind.shape)), got=str(list(shape))))
        elif not np.can_cast(dtype, str(kind.dtype), "same_kind"):
            message = f"the input `{name}` has another type"
            problems.append(Problem(message, expected=str(kind.dtype), got=str(dtype)))
    return problems


def kernel_failure(node: Node | None, error: Exception) -> RunError:
    """The error of a kernel as the user reads it: the layer and its line, the op, its operands."""
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
