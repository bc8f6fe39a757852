"""Operations of Keras that reduce, or return indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.keras.importing.axes import Order, TensorView, axis_here
from netspec.exchange.formats.keras.importing.config import LayerCall
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.operations import argument, keeping, name_of, one, operation
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    from numpy.typing import NDArray


_REDUCTIONS = {
    "mean": "mean", "sum": "sum", "max": "max", "min": "min", "prod": "prod", "amax": "max", "amin": "min",
    "logsumexp": "logsumexp", "average": "mean", "norm": "l2", "reduce_euclidean_norm": "l2",
    "reduce_logsumexp": "logsumexp",
}  # fmt: skip
NOWHERE = 99
"""The position of an argument that is always given by name."""


@operation(*_REDUCTIONS)
def reduction(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Reductions along axes of each sample."""
    name, held = name_of(call), one(importer, given)
    if argument(given, "weights", NOWHERE) is not None or argument(given, "initial", NOWHERE) is not None:
        raise UnsupportedFeature("its elements are weighted, or it has an initial value")
    of_norm = argument(given, "ord", NOWHERE)
    axes = _axes(argument(given, "axis", 2 if name == "norm" else 1), held)
    if of_norm not in (None, 2, "fro", "euclidean") or (of_norm == 2 and len(axes) > 1):
        raise UnsupportedFeature(f"it is the norm of order {of_norm}")
    importer.put(call, reduced(importer, call, held, _REDUCTIONS[name], axes, bool(given.get("keepdims"))))


def _axes(axes: Any, held: TensorView) -> list[int]:
    rank = len(held.order)
    listed = [axis % rank for axis in (axes if isinstance(axes, list) else [axes])] if axes is not None else []
    if not listed or 0 in listed:
        raise UnsupportedFeature("it combines several samples")
    if held.rows is not None:
        raise UnsupportedFeature("the features of a flattened image come in another order")
    return listed


def reduced(
    importer: KerasImporter,
    call: LayerCall,
    held: TensorView,
    how: str,
    axes: Sequence[int],
    keep: bool,
    name: str = "",
) -> TensorView:
    """Add a Reduction along axes of Keras."""
    rank, own = len(held.order), name or importer.name_of(call)
    fields: dict[str, Any] = {"operation": how, "axes": sorted(held.order[axis] for axis in axes)}
    if keep:
        return importer.add(call, "Reduction", {**fields, "keepdims": True}, [held], held.order, name=own)[0]
    left = [held.order[axis] for axis in range(rank) if axis not in axes]
    order: Order = tuple(sorted(left).index(axis) for axis in left)
    if len(left) > 1:
        return importer.add(call, "Reduction", fields, [held], order, name=own)[0]
    (made,) = importer.add(call, "Reduction", fields, [held], name=f"{own}/rows")  # (N, 1): only the batch is left
    return importer.add(call, "Reshape", {"target_shape": []}, [made], name=own)[0]


@operation("var", "std", "reduce_variance", "reduce_std")
def spread(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Variance and standard deviation."""
    held, own = one(importer, given), importer.name_of(call)
    axes, keep = _axes(argument(given, "axis", 1), held), bool(given.get("keepdims"))
    mean = reduced(importer, call, held, "mean", axes, True, f"{own}/mean")
    inputs = [held, mean]
    (squares,) = importer.add(call, "Expression", {"expr": "(x - y) ** 2"}, inputs, held.order, name=f"{own}/squares")
    if name_of(call).endswith("std"):
        variance = reduced(importer, call, squares, "mean", axes, keep, f"{own}/variance")
        keeping(importer, call, variance, "Power", {"power": 0.5})
    else:
        importer.put(call, reduced(importer, call, squares, "mean", axes, keep))


@operation("ptp")
def width(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Maximum minus minimum."""
    held, own = one(importer, given), importer.name_of(call)
    axes, keep = _axes(argument(given, "axis", 1), held), bool(given.get("keepdims"))
    ends = [reduced(importer, call, held, how, axes, keep, f"{own}/{how}") for how in ("max", "min")]
    importer.put(call, *importer.add(call, "Subtract", {}, ends, ends[0].order))


@operation("all", "any", "count_nonzero", "reduce_all", "reduce_any")
def truths(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """`all`, `any` and `count_nonzero`."""
    held, own = one(importer, given), importer.name_of(call)
    axes, keep = _axes(argument(given, "axis", 1), held), bool(given.get("keepdims"))
    if str(held.value.dtype) != "bool":
        fields = {"expr": "x != 0", "keep_types": True}
        (held,) = importer.add(call, "Expression", fields, [held], held.order, name=f"{own}/true")
    (held,) = importer.add(call, "Cast", {"dtype": "int32"}, [held], held.order, name=f"{own}/counted")
    how = {"all": "min", "any": "max", "nonzero": "sum"}[name_of(call).rpartition("_")[2]]
    if how == "sum":
        importer.put(call, reduced(importer, call, held, how, axes, keep))
    else:
        keeping(
            importer, call, reduced(importer, call, held, how, axes, keep, f"{own}/{how}"), "Cast", {"dtype": "bool"}
        )


@operation("normalize", "l2_normalize")
def normalize(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Normalize to length 1 along axes."""
    held, axis = one(importer, given), argument(given, "axis", 1, -1)
    if given.get("order", 2) != 2:
        raise UnsupportedFeature(f"it divides by the norm of order {given['order']}")
    axes = [axis_here(int(each), held.order) for each in (axis if isinstance(axis, list) else [axis])]
    keeping(importer, call, held, "UnitNormalization", {"axis": sorted(axes)})


def of_sample(axis: Any, held: TensorView) -> int:
    """An axis of Keras other than the batch."""
    rank = len(held.order)
    if type(axis) is not int or not -rank <= axis < rank or axis % rank == 0:
        raise UnsupportedFeature("it goes through several samples")
    return axis % rank


_ALONG = {"argmax": "ArgMax", "argmin": "ArgMin", "cumsum": "CumSum", "cumprod": "CumProd"}


@operation(*_ALONG)
def along(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """ArgMax, ArgMin, and cumulative sums and products along an axis."""
    held = importer.plain(one(importer, given))
    fields: dict[str, Any] = {"axis": of_sample(argument(given, "axis", 1), held)}
    importer.put(call, *importer.add(call, _ALONG[name_of(call)], fields | _kept(given), [held]))


def _kept(given: dict[str, Any]) -> dict[str, Any]:
    return {"keepdims": True} if given.get("keepdims") else {}


@operation("top_k")
def top(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """The largest elements along the last axis, and their indices."""
    importer.put(
        call, *importer.add(call, "TopK", {"k": argument(given, "k", 1)}, [importer.plain(one(importer, given))])
    )


@operation("sort", "argsort")
def sort(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Sort, ascending."""
    held = importer.plain(one(importer, given))
    axis = of_sample(argument(given, "axis", 1, -1), held)
    fields = {"k": held.value.shape[axis], "axis": axis, "largest": False}
    importer.put(call, importer.add(call, "TopK", fields, [held])[int(name_of(call) == "argsort")])


@operation("one_hot")
def one_hot(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """OneHot."""
    held, dtype = importer.plain(one(importer, given)), str(call.layer.config.get("dtype") or "float32")
    fields = {"depth": argument(given, "num_classes", 1), "axis": argument(given, "axis", 2, -1)}
    importer.put(call, *importer.add(call, "OneHot", fields | ({} if "float" in dtype else {"dtype": dtype}), [held]))


@operation("tril", "triu")
def triangle(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Of each matrix."""
    fields = {"upper": name_of(call) == "triu", "k": argument(given, "k", 1, 0)}
    importer.put(call, *importer.add(call, "Trilu", fields, [importer.plain(one(importer, given))]))


@operation("det")
def determinant(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Of each matrix."""
    importer.put(call, *importer.add(call, "Det", {}, [importer.plain(one(importer, given))]))


def matrix(numbers: Any) -> NDArray[Any]:
    """An array of a configuration."""
    import numpy as np

    if not isinstance(numbers, list):
        raise UnsupportedFeature(f"one of its operands is {str(numbers)[:40]}")
    return np.asarray(numbers, getattr(numbers, "dtype", None))
