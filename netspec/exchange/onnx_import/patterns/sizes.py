"""Whether what is reduced over axes is stretched back along the same axes wherever a pattern has it meet what is not.

A formula takes no notice of it: sizes are known only when the layers before have been written down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.patterns.matching import STRETCHING

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Form(Enum):
    """The axes of something within a pattern, beside those of what it is about."""

    FULL = "the same axes"
    KEPT = "those that were reduced have size 1"
    DROPPED = "those that were reduced are gone"


def holds(
    parts: Sequence[Node],
    about: str,
    shape: Sequence[int],
    axes: Sequence[int],
    constants: Mapping[str, NDArray[Any]],
) -> bool:
    """Whether the nodes, in order, compute what their pattern says of `about`, of this shape, reduced over `axes`."""
    sizes = {
        Form.FULL: list(shape),
        Form.KEPT: [1 if axis in axes else size for axis, size in enumerate(shape)],
        Form.DROPPED: [size for axis, size in enumerate(shape) if axis not in axes],
    }
    forms = {about: Form.FULL}
    for node in parts:
        read = [forms[name] for name in node.inputs if name in forms]
        if node.op_type.startswith("Reduce"):
            found = Form.KEPT if node.attributes["keepdims"] else Form.DROPPED
        elif node.op_type in STRETCHING:
            made = _stretched(node, sizes[read[0]], constants)
            expanded = node.op_type == "Expand" and read == [Form.KEPT] and made == sizes[Form.FULL]
            if not expanded and (made != sizes[Form.KEPT] or Form.FULL in read):
                return False
            found = Form.FULL if expanded else Form.KEPT
        else:
            weights = any(name in constants and constants[name].size > 1 for name in node.inputs)
            if Form.DROPPED in read and (weights or {*read} != {Form.DROPPED}):
                return False
            found = Form.FULL if Form.FULL in read else read[0]
        forms[node.outputs[0]] = found
    return forms[parts[-1].outputs[0]] is not Form.DROPPED if parts else True


def _stretched(node: Node, sizes: list[int], constants: Mapping[str, NDArray[Any]]) -> list[int]:
    """The sizes of what Reshape, Unsqueeze or Expand makes of these; none where it is not known."""
    given = constants.get(node.operand(1))
    target = list(node.attributes.get("axes", ())) if given is None else given.reshape(-1).tolist()
    match node.op_type:
        case "Unsqueeze":
            rank = len(sizes) + len(target)
            added, left = {axis % rank for axis in target}, iter(sizes)
            return [1 if axis in added else next(left) for axis in range(rank)]
        case "Expand":
            import numpy as np

            return list(np.broadcast_shapes(tuple(sizes), tuple(target)))
    made = [sizes[place] if size == 0 and place < len(sizes) else size for place, size in enumerate(target)]
    known = prod(size for size in made if size != -1)
    return [prod(sizes) // known if size == -1 and known else size for size in made]
