"""What must hold of every kernel of every device: it computes what the op's `forward` says, where it is told to.

A backend added later is picked up by its device. Kernels that decline a call are passed by; that each op has one that
takes it is tested too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from netspec.backends.base import Device
from netspec.backends.calls import Calls
from netspec.backends.device import DEVICES, open_device
from netspec.backends.openmp import using_threads
from netspec.errors import NetspecError
from netspec.graph.kernel import Buffers, Kernel, Thunk, candidates, kernels_for, registered
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.shape import Reorder
from netspec.graph.ops.source import Input
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Value
from tests.interpret import evaluate
from tests.registry.op_calls import Call, call, calls, name, numbers

MOST = {DType.FLOAT32: 2, DType.FLOAT64: 1}
"""So many calls of each op that the cases make, beside its samples; in float64 the same code runs with another type."""

RELATIVE = {DType.FLOAT32: 2e-5, DType.FLOAT64: 1e-12}
"""Of the greatest number of a result: some hundred terms, added in another order, with fused multiplications or not."""
ROUNDED = 2**-8
"""Of a number that lies as bfloat16, which has 8 significant bits: rounding takes half of the last one, and two numbers
that differ by a rounding of float32 may be rounded to two neighbours."""


@cache
def devices() -> dict[str, Device]:
    """The devices of this machine that compute."""
    found = {}
    for label, cls in DEVICES.items():
        if cls.runs:
            try:
                found[label] = open_device(label)
            except NetspecError:  # not on this machine
                continue
    return found


def all_calls() -> Iterator[Call]:
    """The calls that kernels are tried on, in both precisions."""
    for dtype, most in MOST.items():
        for made in calls(dtype, most):
            if not (made.op.traits.source or made.op.traits.view):
                yield made


def own_calls(one: Kernel) -> Iterator[Call]:
    """The samples that the kernel brings along."""
    for op, types in one.samples():
        yield call(op, *(numbers(*kind.shape, offset=0.1 * i).astype(str(kind.dtype)) for i, kind in enumerate(types)))


@cache
def accepting() -> list[tuple[str, Kernel, Call]]:
    """Every (device, kernel, call) that the kernel takes; of devices with arrays of one library, one tries a kernel."""
    found: dict[tuple[Any, Kernel, Call], str] = {}
    every = list(all_calls())
    for label, device in devices().items():
        library = getattr(device, "xp", label)
        tried = [(one, made) for made in every for one in kernels_for(type(made.op), device.kernels)]
        tried += [(one, made) for one in registered(device.kernels) for made in own_calls(one)]
        for one, made in tried:
            if one.why_not(made.op, *(value.type for value in made.node.inputs)) is None:
                found.setdefault((library, one, made), label)
    return [(label, one, made) for (_, one, made), label in found.items()]


def case_id(case: tuple[str, Kernel, Call]) -> str:
    label, one, made = case
    float_type = next((value.dtype for value in (*made.node.inputs, *made.node.outputs) if value.dtype.is_float), "")
    return f"{label}-{one.backend}-{type(one).__name__}-{name(made)}-{float_type}"


def is_double(made: Call) -> bool:
    return any(value.dtype == DType.FLOAT64 for value in (*made.node.inputs, *made.node.outputs))


def with_several_results() -> list[tuple[str, Kernel, Call]]:
    """Which results are left out is decided alike in both precisions."""
    return [case for case in accepting() if len(case[2].node.outputs) > 1 and not is_double(case[2])]


def code_of(made: Call) -> Any:
    """What tells a call's code from that of others but for what it computes: of elementwise ops, which are all compiled
    by the same rules, the ways in which operands and results lie; of others the call itself.
    """
    results, operands = made.node.outputs, made.node.inputs
    if not made.op.traits.elementwise:
        return made
    return tuple((value.dtype, value.shape == results[0].shape) for value in (*operands, *results))


def over(made: Call) -> tuple[tuple[int, ...], ...]:
    """For each result the operands, by number, that it may be written over."""
    operands = made.node.inputs
    ways = (made.op.overwritable(result.index, operands) for result in made.node.outputs)
    return tuple(tuple(operands.index(operand) for operand in way) for way in ways)


@cache
def exemplars() -> list[tuple[str, Kernel, Call]]:
    """A case for each kernel and kind of code, in one precision: for what does not depend on what is computed, since
    each way in which that is done has to be compiled.
    """
    found: dict[Any, tuple[str, Kernel, Call]] = {}
    for label, one, made in accepting():
        if not is_double(made):
            found.setdefault((label, one, code_of(made), over(made)), (label, one, made))
    return list(found.values())


every_kernel = pytest.mark.parametrize("case", accepting(), ids=case_id)


@pytest.fixture(scope="module", autouse=True)
def two_threads() -> Iterator[None]:
    """What is large enough is shared out among two, however many tests have otherwise."""
    with using_threads(2):
        yield


def array(device: Device, kind: TensorType, host: Any = None, layout: Layout = PLAIN) -> Any:
    """An array on the device, of the given values or full of what no kernel would write by chance."""
    made = device.view(device.allocate(aligned(max(layout.nbytes(kind), 1))), 0, kind, layout)
    if host is None:
        host = np.full(made.shape, np.nan if kind.dtype.is_float else 101 if kind.dtype != DType.BOOL else True)
    elif layout.form is not None:
        repack(device, kind, array(device, kind, host), PLAIN, made, layout)
        return made
    device.upload(made, np.asarray(host).astype(str(kind.dtype)))
    return made


def fetch(device: Device, made: Any, kind: TensorType, layout: Layout) -> Any:
    """What an array on the device holds; an opaque one is made plain by the backend that knows it."""
    if layout.form is None:
        return device.fetch(made)
    plain = array(device, kind)
    repack(device, kind, made, layout, plain, PLAIN)
    return device.fetch(plain)


def repack(device: Device, kind: TensorType, source: Any, lies: Layout, target: Any, wanted: Layout) -> None:
    """Copy a value from one layout into another."""
    node, one = repacking(device, kind, lies, wanted)
    lying = Signature((lies,), (wanted,))
    called(device, one, node, one.bind(node, Buffers((source,), (target,), lying)))()


def repacking(device: Device, kind: TensorType, lies: Layout, wanted: Layout) -> tuple[Node, Kernel]:
    """What copies a value from one layout into another."""
    node = Reorder(lies, wanted)(Input("x", kind)()).node
    return node, candidates(node, device.kernels).kernels[0]


def signatures(device: Device, one: Kernel, made: Call) -> list[Signature]:
    """How the kernel takes the call's operands and gives its results: for plain operands, and for channels-last ones;
    and where the device has types of fewer bits and the kernel takes them, both once more in these.

    As in the layout pass the results of an elementwise op lie as its whole operands do, all of them alike.
    """

    def channels_last(kind: TensorType) -> Layout:
        return Layout.channels_last(kind.rank) if kind.rank > 2 else PLAIN

    def plain(_: TensorType) -> Layout:
        return PLAIN

    found = []
    for layout_of in (plain, channels_last):
        given = [layout_of(value.type) for value in made.node.inputs]
        if made.op.traits.elementwise:
            found.append(Signature(tuple(given), tuple(layout_of(value.type) for value in made.node.outputs)))
        else:
            found.append(one.layouts(made.node, given))
            found += one.alternatives(made.node, given)
    for lying in found[:]:
        for dtype in device.narrow:
            narrow = one.narrowed(made.node, in_type(made, lying, dtype))
            if narrow is not None:
                found.append(narrow)
    return list(dict.fromkeys(found))


def in_type(made: Call, lying: Signature, dtype: DType) -> Signature:
    """The layouts with all float32 operands and results in another type."""

    def stored(values: Sequence[Value], layouts: Sequence[Layout]) -> tuple[Layout, ...]:
        floats = [value.dtype == DType.FLOAT32 for value in values]
        return tuple(one.as_stored(dtype) if as_float else one for one, as_float in zip(layouts, floats, strict=True))

    return Signature(stored(made.node.inputs, lying.inputs), stored(made.node.outputs, lying.outputs))


def is_narrow(lying: Signature) -> bool:
    return any(layout.dtype is not None for layout in (*lying.inputs, *lying.outputs))


def for_signature(made: Call, lying: Signature) -> Call:
    """The call; with operands that bfloat16 holds if any lie so: then a product may round all of them."""
    if not is_narrow(lying):
        return made
    given = [x.astype(ml_dtypes.bfloat16).astype(x.dtype) if x.dtype == np.float32 else x for x in made.operands]
    return Call(made.node, tuple(given))


def bound(
    device: Device, one: Kernel, made: Call, lying: Signature, inputs: Sequence[Any], outputs: Sequence[Any]
) -> Callable[[], None]:
    size = one.workspace(made.node, lying)
    workspace = device.view(device.allocate(aligned(size)), 0, TensorType((size,), DType.UINT8)) if size else None
    thunk: Thunk = one.bind(made.node, Buffers(tuple(inputs), tuple(outputs), lying, workspace))
    return called(device, one, made.node, thunk)


def called(device: Device, one: Kernel, node: Node, thunk: Thunk) -> Callable[[], None]:
    """A call that finds as many threads as the kernel wants."""
    calls = Calls(device.set_threads, device.threads())
    calls.add(thunk, node, one.threads(node))
    return calls.run


def operands(device: Device, made: Call, lying: Signature) -> list[Any]:
    """The call's operands on the device, lying as the kernel wants them."""
    return [
        array(device, value.type, x, layout)
        for value, x, layout in zip(made.node.inputs, made.operands, lying.inputs, strict=True)
    ]


def agree(got: Any, expected: np.ndarray) -> None:
    stored = DType(str(got.dtype))
    assert got.shape == expected.shape
    assert str(stored.computed) == str(expected.dtype)
    if stored.is_float:
        tolerance = RELATIVE[stored.computed]
        relative = tolerance if stored == stored.computed else ROUNDED
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got.astype(expected.dtype), expected, rtol=relative, atol=tolerance * scale)
    else:
        np.testing.assert_array_equal(got, expected)


@every_kernel
def test_agrees_with_the_reference_each_time_and_leaves_its_operands_alone(case: tuple[str, Kernel, Call]) -> None:
    device, one = devices()[case[0]], case[1]
    for signature in signatures(device, one, case[2]):
        if is_narrow(signature) and case not in exemplars():
            continue  # how elements of fewer bits are read and written is the same for all elementwise ops
        made = for_signature(case[2], signature)
        runs_right(device, one, made, signature, evaluate(made.node.outputs, made.feeds))


def runs_right(device: Device, one: Kernel, made: Call, lying: Signature, expected: Sequence[np.ndarray]) -> None:
    inputs = operands(device, made, lying)
    outputs = [
        array(device, value.type, None, layout) for value, layout in zip(made.node.outputs, lying.outputs, strict=True)
    ]
    run = bound(device, one, made, lying, inputs, outputs)
    given = [device.fetch(x) for x in inputs]
    run()
    results = [(value.type, layout) for value, layout in zip(made.node.outputs, lying.outputs, strict=True)]
    first = [fetch(device, y, *how) for y, how in zip(outputs, results, strict=True)]
    for got, right in zip(first, expected, strict=True):
        agree(got, right)
    for y, (kind, layout) in zip(outputs, results, strict=True):
        device.upload(y, device.fetch(array(device, kind, None, layout)))
    run()
    for y, before, how in zip(outputs, first, results, strict=True):
        np.testing.assert_array_equal(fetch(device, y, *how), before)
    for x, before in zip(inputs, given, strict=True):
        np.testing.assert_array_equal(device.fetch(x), before)


@every_kernel
def test_what_is_not_a_number_stays_so(case: tuple[str, Kernel, Call]) -> None:
    """A kernel that hid NaN (a ReLU that makes 0 of it) would keep the guard from seeing it."""
    device, one, made = devices()[case[0]], case[1], case[2]
    spoiled = tuple(
        np.full_like(x, np.nan) if value.dtype.is_float else x
        for value, x in zip(made.node.inputs, made.operands, strict=True)
    )
    bad = Call(made.node, spoiled)
    with np.errstate(all="ignore"):
        expected = evaluate(bad.node.outputs, bad.feeds)
    for lying in {is_narrow(found): found for found in signatures(device, one, bad)}.values():
        outputs = [
            array(device, value.type, None, layout)
            for value, layout in zip(made.node.outputs, lying.outputs, strict=True)
        ]
        for value, y in zip(made.node.outputs, outputs, strict=True):
            if value.dtype.is_float:
                device.upload(y, np.zeros(y.shape))  # so that what is not written is noticed
        bound(device, one, bad, lying, operands(device, bad, lying), outputs)()
        for value, y, right, layout in zip(made.node.outputs, outputs, expected, lying.outputs, strict=True):
            if value.dtype.is_float:
                assert np.isnan(fetch(device, y, value.type, layout))[np.isnan(right)].all()


@pytest.mark.parametrize("case", with_several_results(), ids=case_id)
def test_computes_any_one_of_its_results(case: tuple[str, Kernel, Call]) -> None:
    device, one, made = devices()[case[0]], case[1], case[2]
    expected = evaluate(made.node.outputs, made.feeds)
    for wanted, right in enumerate(expected):
        lying = signatures(device, one, made)[0]
        inputs = operands(device, made, lying)
        outputs = [
            array(device, value.type, None, lying.outputs[i]) if i == wanted else None
            for i, value in enumerate(made.node.outputs)
        ]
        bound(device, one, made, lying, inputs, outputs)()
        agree(fetch(device, outputs[wanted], made.node.types[wanted], lying.outputs[wanted]), right)


@pytest.mark.parametrize("case", [case for case in exemplars() if any(over(case[2]))], ids=case_id)
def test_may_write_over_an_operand_where_the_op_says_so(case: tuple[str, Kernel, Call]) -> None:
    device, one, made = devices()[case[0]], case[1], case[2]
    for lying in {is_narrow(found): found for found in signatures(device, one, made)}.values():
        given = for_signature(made, lying)
        right = evaluate(given.node.outputs, given.feeds)
        for result, layout in zip(made.node.outputs, lying.outputs, strict=True):
            for operand in made.op.overwritable(result.index, made.node.inputs):
                place = made.node.inputs.index(operand)
                if operand.type == result.type and lying.inputs[place] == layout:
                    inputs = operands(device, given, lying)
                    outputs = [
                        array(device, value.type, None, how)
                        for value, how in zip(made.node.outputs, lying.outputs, strict=True)
                    ]
                    outputs[result.index] = inputs[place]
                    bound(device, one, given, lying, inputs, outputs)()
                    for output, wanted in zip(outputs, right, strict=True):
                        agree(device.fetch(output), wanted)


@pytest.mark.parametrize("label", devices())
def test_each_call_of_each_op_finds_a_kernel(label: str) -> None:
    for made in all_calls():
        candidates(made.node, devices()[label].kernels)  # raises with the reasons of all


@pytest.mark.parametrize("label", devices())
def test_each_kernel_takes_a_call(label: str) -> None:
    """Else nothing here says that it computes what it should, by itself or by packing operands for others."""
    device = devices()[label]
    taken = {one for _, one, _ in accepting()}
    for _, one, made in accepting():
        for lying in signatures(device, one, made) if one.backend in device.kernels else ():
            taken |= {
                repacking(device, value.type, PLAIN, layout)[1]
                for value, layout in zip(made.node.inputs, lying.inputs, strict=True)
                if layout.form is not None
            }
    ours = [one for one in registered(device.kernels) if type(one).__module__.startswith("netspec.")]
    idle = [one.label for one in ours if one not in taken and one.absent() is None]
    assert idle == [], "no layer, op or sample reaches them: give the kernels `samples`"
