"""Inputs of the net: the batch axis of each input of the model, and the sizes of its other axes.

In batches, every input has a batch axis, usually in front. As a single sample, none has: the model computes one sample,
and its inputs have fixed sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from netspec.errors import Problem, did_you_mean, listing
from netspec.exchange.axis_view import AxisView, axes_with_batch_at
from netspec.exchange.interface import sizes_shown, unread
from netspec.exchange.lift.tensors import MAX_SIZE
from netspec.exchange.operator_graph.arrays import NARROW
from netspec.exchange.operator_graph.graph import GraphInput
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.schema.specs.net import InputDType

if TYPE_CHECKING:
    from netspec.exchange.lift.context import LiftContext, Report

OPEN_BATCH = 7919
"""Stands for the size of an open batch axis: a prime that no other axis is likely to have."""
OTHER_BATCH = 7907
"""A second such prime: layers that differ between the two depend on the size of the batch."""

INPUT_TYPES = {
    **{dtype: dtype for dtype in get_args(InputDType)},
    **dict.fromkeys(("float64", "float16", "bfloat16"), "float32"),
    **NARROW,
}
"""The element type that a net's input has for one of the model's."""


@dataclass(frozen=True)
class LiftedInput:
    """An input of the net."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Shape of a sample."""
    batch: int | None
    """The axis of samples in the model's input; None if the whole input is one sample."""


def add_inputs(ctx: LiftContext, shapes: Mapping[str, tuple[int, ...]], batch_size: int = 0) -> None:
    """Add the net's inputs to an import, with the sizes that the user gives, and report those that cannot be inputs.

    `batch_size` overrides the batch size of the model.
    """
    tensors, report = ctx.tensors, ctx.report
    read = [model_input for model_input in ctx.model.inputs if tensors.is_read(model_input.name)]
    for model_input in ctx.model.inputs:
        name, dtype = model_input.name, model_input.dtype
        if model_input not in read:
            report.remarks.add(*unread(name))
        elif dtype not in INPUT_TYPES:
            contents = "text" if dtype == "object" else dtype
            report.problems.append(Problem(f"the input `{name}` holds {contents}, which no net takes"))
        elif INPUT_TYPES[dtype] != dtype:
            text = f"the input `{name}` of {dtype} becomes {INPUT_TYPES[dtype]}"
            kind = "{count} inputs have another element type here"
            report.remarks.add(text, kind, f"`{name}` {dtype} → {INPUT_TYPES[dtype]}")
    sized_inputs, wrong = sized(ctx.model.inputs, shapes)
    report.problems += wrong
    supported = [
        model_input
        for model_input in sized_inputs
        if tensors.is_read(model_input.name) and model_input.dtype in INPUT_TYPES
    ]
    report.remarks += ctx.model.remarks
    feeds, size = (as_single_samples if tensors.single_sample else batched)(supported, report)
    ctx.batch_size = batch_size or size
    report.remarks += report.assumed
    for model_input in read:
        ctx.nodes.expect(model_input.name)
    for feed in feeds:
        _add_input(ctx, feed)
    if not read:
        report.problems.append(Problem("the model reads no input", expected="something to compute with"))


def _add_input(ctx: LiftContext, feed: LiftedInput) -> None:
    if prod(feed.shape) > MAX_SIZE:
        message, expected = f"the input `{feed.name}` is too large", f"at most {MAX_SIZE:,} numbers in a sample"
        ctx.report.problems.append(Problem(message, expected=expected, got=f"{list(feed.shape)}"))
        return
    ctx.nodes.provide(feed.name)
    tensor = ctx.tensors.fresh_name(feed.name) if feed.batch else feed.name
    ctx.inputs[tensor] = feed
    ctx.tensors.values[tensor] = Input(feed.name, TensorType((ctx.batch_size, *feed.shape), DType(feed.dtype)))()
    if feed.batch:
        ctx.tensors.views[feed.name] = AxisView(tensor, axes_with_batch_at(feed.batch, len(feed.shape) + 1))


def samples_moved(direction: str, name: str, axis: int) -> tuple[str, str, str]:
    """Arguments of `Note` for an input or output whose samples are not along axis 0 in the model."""
    text = f"the {direction} `{name}` has its samples in front here, not as axis {axis}"
    return text, f"{{count}} {direction}s have their samples in front here", f"`{name}` (axis {axis})"


def sized(
    inputs: Sequence[GraphInput], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[GraphInput], list[Problem]]:
    """The inputs with the user's sizes, which are given by input, with or without the batch, or by named axis."""
    axes = {name for model_input in inputs for name in model_input.names if name}
    input_names = {model_input.name for model_input in inputs}
    problems = [
        Problem(
            f"a shape is given for `{name}`, which is not an input",
            expected=listing(sorted(input_names | axes)), hint=did_you_mean(name, sorted(input_names | axes)),
        )
        for name in sorted(shapes.keys() - input_names - axes)
    ]  # fmt: skip
    named = {}
    for name in sorted((shapes.keys() & axes) - input_names):
        if len(shapes[name]) == 1:
            named[name] = shapes[name][0]
        else:
            problems.append(Problem(f"`{name}` is an axis of the model", expected=f"one size: --shape {name}=48"))
    sized_inputs = []
    for model_input in inputs:
        shape, dims = shapes.get(model_input.name), model_input.dims
        if shape is not None and dims is None:
            dims = (None, *shape)
        elif shape is not None and dims is not None:
            if len(shape) == len(dims) - 1:
                first = _batch_axis(model_input, _batch_name(inputs)) or 0
                shape = (*shape[:first], dims[first] or 0, *shape[first:])
            if len(shape) != len(dims) or any(
                have and want and have != want for have, want in zip(dims, shape, strict=False)
            ):
                expected = f"sizes that fit {_sizes(model_input)}, with or without the batch"
                got = "--shape " + model_input.name + "=" + ",".join(map(str, shapes[model_input.name]))
                problems.append(
                    Problem(f"the shape given for `{model_input.name}` is not its", expected=expected, got=got)
                )
                continue
            dims = tuple(size or None for size in shape)
        if dims is not None:
            names = model_input.names or ("",) * len(dims)
            dims = tuple(size or named.get(name) for size, name in zip(dims, names, strict=False))
        sized_inputs.append(replace(model_input, dims=dims))
    return sized_inputs, problems


def pinned(
    inputs: Sequence[GraphInput], values: Mapping[str, tuple[float, ...]]
) -> tuple[dict[str, NDArray[Any]], list[Problem]]:
    """The inputs whose values the user gives, as constants; a single number is the value of all elements."""
    by_name, constants, problems = {model_input.name: model_input for model_input in inputs}, {}, []
    for name, numbers in values.items():
        model_input = by_name.get(name)
        if model_input is None:
            hint = did_you_mean(name, list(by_name))
            problems.append(
                Problem(
                    f"a value is given for `{name}`, which is not an input",
                    expected=listing(sorted(by_name)),
                    hint=hint,
                )
            )
            continue
        dims = model_input.dims if model_input.dims is not None else () if len(numbers) == 1 else (None,)
        array = np.asarray(numbers)
        open_ = [size for size in dims if size is None]
        shape = tuple(-1 if size is None else size for size in dims)
        fixed = prod(size for size in shape if size > 0)
        if len(numbers) == 1 and not open_:
            array = np.full(shape, array[0])
        elif len(open_) <= 1 and (len(numbers) == fixed or (open_ and len(numbers) % fixed == 0)):
            array = array.reshape(shape)
        else:
            problems.append(
                Problem(
                    f"{len(numbers)} numbers do not fit the input `{name}`",
                    expected=f"as many as {_sizes(model_input)}",
                )
            )
            continue
        constant = array.astype(model_input.dtype)
        if constant.dtype.kind != "f" and not np.array_equal(constant, array):
            problems.append(Problem(f"the input `{name}` holds {model_input.dtype}", got=", ".join(map(str, numbers))))
            continue
        constants[name] = constant
    return constants, problems


def batched(inputs: Sequence[GraphInput], report: Report) -> tuple[list[LiftedInput], int]:
    """The inputs, each with an axis of samples, and the batch size: `OPEN_BATCH` if the model leaves it open."""
    feeds, batch = [], OPEN_BATCH
    shared, sizes, labels = _batch_name(inputs), set(), set()
    for model_input in inputs:
        dims = model_input.dims
        if dims is not None and not dims:
            report.mixed.append(Problem(f"the input `{model_input.name}` is a single number, for all samples"))
            continue
        axis = _batch_axis(model_input, shared)
        if axis is None:
            report.mixed.append(
                Problem(f"the input `{model_input.name}` has no axis of samples: {_sizes(model_input)}")
            )
            continue
        if dims is None or any(size is None for index, size in enumerate(dims) if index != axis):
            report.missing.append(_missing(model_input, axis))
            continue
        sizes |= {dims[axis]} - {None}
        labels |= {model_input.names[axis]} if model_input.names else set()
        shape = tuple(size for index, size in enumerate(dims) if index != axis and size is not None)
        feeds.append(LiftedInput(model_input.name, INPUT_TYPES[model_input.dtype], shape, axis))
        if axis:
            report.remarks.add(*samples_moved("input", model_input.name, axis))
    if len(sizes) > 1:
        batch_sizes = sorted(size for size in sizes if size)
        report.mixed.append(Problem(f"the inputs have different batch sizes: {batch_sizes}"))
    elif sizes:
        batch = sizes.pop() or OPEN_BATCH
    if len(labels - {""}) > 1:
        report.remarks.add(f"{listing(sorted(labels - {''}))} are taken for the same: the axis of samples")
    return feeds, batch


def as_single_samples(inputs: Sequence[GraphInput], report: Report) -> tuple[list[LiftedInput], int]:
    """Return the inputs as single samples, and `OPEN_BATCH` as the size of a batch.

    If only a common first axis is open, it gets the size 1.
    """
    feeds = []
    shared = _batch_name(inputs)
    several = [
        model_input
        for model_input in inputs
        if model_input.dims is None or None in model_input.dims or prod(filter(None, model_input.dims)) > 1
    ]
    alone = len(several) == 1 and not shared
    for model_input in inputs:
        dims = model_input.dims
        if dims is not None and None in dims:
            names_batch = shared and all(shared in model_input.names for model_input in several)
            in_front = any(other_input.names and other_input.names[0] == shared for other_input in inputs)
            axis = _batch_axis(model_input, shared) if names_batch and in_front else None
            axis = 0 if alone and dims[0] is None else axis
            if axis is not None and dims[axis] is None:
                dims = (*dims[:axis], 1, *dims[axis + 1 :])
                report.assumed.append(
                    f"axis {axis} of `{model_input.name}` is taken to have the size 1: `--shape` gives another"
                )
        if dims is None or None in dims:
            report.missing.append(_missing(model_input, None))
        else:
            shape = tuple(size for size in dims if size is not None)
            feeds.append(LiftedInput(model_input.name, INPUT_TYPES[model_input.dtype], shape, None))
    return feeds, OPEN_BATCH


def _batch_name(inputs: Sequence[GraphInput]) -> str:
    """The name of the axis of samples: the most frequent name of first axes, or the only name of any axis.

    The latter does not count if all sizes are fixed, and all first axes have size 1.
    """
    first_names = Counter(model_input.names[0] for model_input in inputs if model_input.names and model_input.names[0])
    if first_names:
        return first_names.most_common(1)[0][0]
    named = {name for model_input in inputs for name in model_input.names if name}
    fixed = all(model_input.dims and model_input.dims[0] for model_input in inputs)
    in_front = all(
        model_input.dims and None not in model_input.dims and model_input.dims[0] == 1 for model_input in inputs
    )
    return named.pop() if len(named) == 1 and fixed and not in_front else ""


def _batch_axis(model_input: GraphInput, shared: str) -> int | None:
    """The axis of samples: the one with the shared name, else the first unless it is fixed."""
    if shared and shared in model_input.names:
        return model_input.names.index(shared)
    fixed = model_input.dims is not None and bool(model_input.dims) and model_input.dims[0] is not None
    return None if shared and fixed else 0


def _missing(model_input: GraphInput, batch: int | None) -> Problem:
    """Return the problem of an input with dynamic sizes, with the option that sets them."""
    dims, names = model_input.dims or (), model_input.names or ("",) * len(model_input.dims or ())
    open_ = {axis: name for axis, name in enumerate(names) if not dims[axis] and axis != batch}
    sizes = ["…" if axis in open_ else str(size) for axis, size in enumerate(dims) if axis != batch]
    options = f"`--shape {model_input.name}={','.join(sizes) or '…'}`"
    if open_ and all(open_.values()):
        options += " or `" + " ".join(f"--shape {name}=…" for name in dict.fromkeys(open_.values())) + "`"
    along = " and ".join(f"`{name}`" if name else f"axis {axis}" for axis, name in open_.items())
    empty = [axis for axis in open_ if axis in model_input.empty]
    zero = f": the model says 0 along {listing([f'axis {axis}' for axis in empty])}" if empty else ""
    return Problem(
        f"the input `{model_input.name}` has no fixed size" + (f" along {along}" if along else "") + zero,
        expected="sizes that are numbers" if batch is None else "a batch axis, then sizes that are numbers",
        got="unknown" if model_input.dims is None else _sizes(model_input),
        hint=f"give the sizes for which the net shall be made: {options}",
    )


def _sizes(model_input: GraphInput) -> str:
    names = model_input.names or ("",) * len(model_input.dims or ())
    return sizes_shown(
        model_input.dims or (), ["0" if axis in model_input.empty else name for axis, name in enumerate(names)]
    )
