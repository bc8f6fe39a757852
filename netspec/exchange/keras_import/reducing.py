"""Operations of Keras that make one number of several, tell places, or multiply matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netspec.exchange.keras_import.axes import Held, Order, axis_here
from netspec.exchange.keras_import.config import Call
from netspec.exchange.keras_import.fields import Unsupported
from netspec.exchange.keras_import.operations import argument, keeping, name_of, one, operation
from netspec.exchange.keras_import.translate import Translator

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REDUCTIONS = {
    "mean": "mean", "sum": "sum", "max": "max", "min": "min", "prod": "prod", "amax": "max", "amin": "min",
    "logsumexp": "logsumexp", "average": "mean", "norm": "l2", "reduce_euclidean_norm": "l2",
    "reduce_logsumexp": "logsumexp",
}  # fmt: skip
NOWHERE = 99
"""The place of an argument that is never given by its place."""


@operation(*_REDUCTIONS)
def reduction(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Along axes of each sample."""
    name, held = name_of(call), one(net, given)
    if argument(given, "weights", NOWHERE) is not None or argument(given, "initial", NOWHERE) is not None:
        raise Unsupported("its numbers are weighed, or joined with another")
    of_norm = argument(given, "ord", NOWHERE)
    axes = _axes(argument(given, "axis", 2 if name == "norm" else 1), held)
    if of_norm not in (None, 2, "fro", "euclidean") or (of_norm == 2 and len(axes) > 1):
        raise Unsupported(f"it is the norm of order {of_norm}")
    net.put(call, reduced(net, call, held, _REDUCTIONS[name], axes, bool(given.get("keepdims"))))


def _axes(axes: Any, held: Held) -> list[int]:
    rank = len(held.order)
    listed = [axis % rank for axis in (axes if isinstance(axes, list) else [axes])] if axes is not None else []
    if not listed or 0 in listed:
        raise Unsupported("it makes one number of several samples")
    if held.rows is not None:
        raise Unsupported("the features of a flattened image come in another order")
    return listed


def reduced(
    net: Translator, call: Call, held: Held, how: str, axes: Sequence[int], keep: bool, name: str = ""
) -> Held:  # fmt: skip
    """Write down a Reduction along axes of Keras."""
    rank, own = len(held.order), name or net.name_of(call)
    fields: dict[str, Any] = {"operation": how, "axes": sorted(held.order[axis] for axis in axes)}
    if keep:
        return net.add(call, "Reduction", {**fields, "keepdims": True}, [held], held.order, name=own)[0]
    left = [held.order[axis] for axis in range(rank) if axis not in axes]
    order: Order = tuple(sorted(left).index(axis) for axis in left)
    if len(left) > 1:
        return net.add(call, "Reduction", fields, [held], order, name=own)[0]
    (made,) = net.add(call, "Reduction", fields, [held], name=f"{own}/rows")  # (N, 1): nothing but the batch is left
    return net.add(call, "Reshape", {"target_shape": []}, [made], name=own)[0]


@operation("var", "std", "reduce_variance", "reduce_std")
def spread(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """The mean of squared distances from the mean, or its root."""
    held, own = one(net, given), net.name_of(call)
    axes, keep = _axes(argument(given, "axis", 1), held), bool(given.get("keepdims"))
    mean = reduced(net, call, held, "mean", axes, True, f"{own}/mean")
    inputs = [held, mean]
    (squares,) = net.add(call, "Expression", {"expr": "(x - y) ** 2"}, inputs, held.order, name=f"{own}/squares")
    if name_of(call).endswith("std"):
        variance = reduced(net, call, squares, "mean", axes, keep, f"{own}/variance")
        keeping(net, call, variance, "Power", {"power": 0.5})
    else:
        net.put(call, reduced(net, call, squares, "mean", axes, keep))


@operation("ptp")
def width(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """The greatest less the least."""
    held, own = one(net, given), net.name_of(call)
    axes, keep = _axes(argument(given, "axis", 1), held), bool(given.get("keepdims"))
    ends = [reduced(net, call, held, how, axes, keep, f"{own}/{how}") for how in ("max", "min")]
    net.put(call, *net.add(call, "Subtract", {}, ends, ends[0].order))


@operation("all", "any", "count_nonzero", "reduce_all", "reduce_any")
def truths(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Whether all, or some, are true; or how many."""
    held, own = one(net, given), net.name_of(call)
    axes, keep = _axes(argument(given, "axis", 1), held), bool(given.get("keepdims"))
    if str(held.value.dtype) != "bool":
        fields = {"expr": "x != 0", "keep_types": True}
        (held,) = net.add(call, "Expression", fields, [held], held.order, name=f"{own}/true")
    (held,) = net.add(call, "Cast", {"dtype": "int32"}, [held], held.order, name=f"{own}/counted")
    how = {"all": "min", "any": "max", "nonzero": "sum"}[name_of(call).rpartition("_")[2]]
    if how == "sum":
        net.put(call, reduced(net, call, held, how, axes, keep))
    else:
        keeping(net, call, reduced(net, call, held, how, axes, keep, f"{own}/{how}"), "Cast", {"dtype": "bool"})


@operation("normalize", "l2_normalize")
def normalize(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Length 1 along axes."""
    held, axis = one(net, given), argument(given, "axis", 1, -1)
    if given.get("order", 2) != 2:
        raise Unsupported(f"it divides by the norm of order {given['order']}")
    axes = [axis_here(int(each), held.order) for each in (axis if isinstance(axis, list) else [axis])]
    keeping(net, call, held, "UnitNormalization", {"axis": sorted(axes)})


def of_sample(axis: Any, held: Held) -> int:
    """An axis of Keras that is not the batch's."""
    rank = len(held.order)
    if type(axis) is not int or not -rank <= axis < rank or axis % rank == 0:
        raise Unsupported("it goes through several samples")
    return axis % rank


_ALONG = {"argmax": "ArgMax", "argmin": "ArgMin", "cumsum": "CumSum", "cumprod": "CumProd"}


@operation(*_ALONG)
def along(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """The place of the greatest or the least, the sum or the product up to each place: along one axis."""
    held = net.plain(one(net, given))
    fields: dict[str, Any] = {"axis": of_sample(argument(given, "axis", 1), held)}
    net.put(call, *net.add(call, _ALONG[name_of(call)], fields | _kept(given), [held]))


def _kept(given: dict[str, Any]) -> dict[str, Any]:
    return {"keepdims": True} if given.get("keepdims") else {}


@operation("top_k")
def top(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """The greatest along the last axis, and their places."""
    net.put(call, *net.add(call, "TopK", {"k": argument(given, "k", 1)}, [net.plain(one(net, given))]))


@operation("sort", "argsort")
def sort(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """All of an axis, the least first."""
    held = net.plain(one(net, given))
    axis = of_sample(argument(given, "axis", 1, -1), held)
    fields = {"k": held.value.shape[axis], "axis": axis, "largest": False}
    net.put(call, net.add(call, "TopK", fields, [held])[int(name_of(call) == "argsort")])


@operation("one_hot")
def one_hot(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """1 at the place, 0 at all others."""
    held, dtype = net.plain(one(net, given)), str(call.layer.config.get("dtype") or "float32")
    fields = {"depth": argument(given, "num_classes", 1), "axis": argument(given, "axis", 2, -1)}
    net.put(call, *net.add(call, "OneHot", fields | ({} if "float" in dtype else {"dtype": dtype}), [held]))


@operation("tril", "triu")
def triangle(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Of each matrix."""
    fields = {"upper": name_of(call) == "triu", "k": argument(given, "k", 1, 0)}
    net.put(call, *net.add(call, "Trilu", fields, [net.plain(one(net, given))]))


@operation("det")
def determinant(net: Translator, call: Call, given: dict[str, Any]) -> None:
    """Of each matrix."""
    net.put(call, *net.add(call, "Det", {}, [net.plain(one(net, given))]))


def matrix(numbers: Any) -> NDArray[Any]:
    """An array of a configuration."""
    import numpy as np

    if not isinstance(numbers, list):
        raise Unsupported(f"one of its operands is {str(numbers)[:40]}")
    return np.asarray(numbers, getattr(numbers, "dtype", None))
