"""What must hold of every kernel of every device: it computes what the op's `forward` says, where it is told to.

A backend added later is picked up by its device. Kernels that decline a call are passed by; that each op has one that
takes it is tested too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

import netspec.distributed  # noqa: F401  # it registers the kernels of communication operations
from netspec.backends.device import Device
from netspec.backends.device_registry import DEVICES, open_device
from netspec.backends.openmp import using_threads
from netspec.errors import NetspecError
from netspec.graph.kernel import Kernel, kernel_candidates, kernels_for, registered_kernels
from netspec.graph.layout import PLAIN, LayoutSignature
from netspec.graph.op import Op
from tests.interpret import evaluate
from tests.registry.kernel_calls import (
    agree,
    all_calls,
    array,
    bound,
    code_of,
    fetch,
    for_signature,
    is_double,
    is_narrow,
    operands,
    over,
    own_calls,
    repacking,
    signatures,
)
from tests.registry.op_calls import Call, name, op_classes
from tests.registry.parametrize import named_like, run_all

Case: TypeAlias = tuple[str, Kernel, Call]
"""A device, a kernel, and a call that the kernel accepts."""


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


def kernels_by_op() -> list[tuple[str, Kernel, type[Op]]]:
    """Every (device, kernel, op class) with a registered kernel; devices that share an array library, once."""
    found: dict[tuple[Any, Kernel, type[Op]], str] = {}
    for label, device in devices().items():
        library = getattr(device, "xp", label)
        for op in op_classes():
            for kernel in kernels_for(op, device.kernels):
                found.setdefault((library, kernel, op), label)
    return [(label, kernel, op) for (_, kernel, op), label in found.items()]


@cache
def calls_by_op() -> dict[type[Op], list[Call]]:
    """The calls that kernels are tried on, by op class."""
    found: dict[type[Op], list[Call]] = {}
    for made in all_calls():
        found.setdefault(type(made.op), []).append(made)
    gc.freeze()  # they stay: no search for garbage need look through them
    return found


@cache
def samples_of(kernel: Kernel) -> list[Call]:
    """The samples of a kernel, each time the same objects."""
    return list(own_calls(kernel))


def accepted(kernel: Kernel, op: type[Op]) -> list[Call]:
    """The calls of an op that the kernel accepts."""
    candidates = calls_by_op().get(op, []) + [made for made in samples_of(kernel) if type(made.op) is op]
    return [
        made
        for made in candidates
        if kernel.reject_reason(made.op, *(value.type for value in made.node.inputs)) is None
    ]


@cache
def accepting() -> list[Case]:
    """Every (device, kernel, call) that the kernel accepts."""
    return [(label, kernel, made) for label, kernel, op in kernels_by_op() for made in accepted(kernel, op)]


def case_id(case: Case) -> str:
    label, one, made = case
    float_type = next((value.dtype for value in (*made.node.inputs, *made.node.outputs) if value.dtype.is_float), "")
    return f"{label}-{one.backend}-{type(one).__name__}-{name(made)}-{float_type}"


def has_several_results(case: Case) -> bool:
    """Which results are left out is decided alike in both precisions."""
    return len(case[2].node.outputs) > 1 and not is_double(case[2])


@cache
def exemplars() -> frozenset[Case]:
    """A case for each kernel and kind of code, in one precision: for what does not depend on what is computed, since
    each way in which that is done has to be compiled.
    """
    found: dict[Any, Case] = {}
    for label, one, made in accepting():
        if not is_double(made):
            found.setdefault((label, one, code_of(made), over(made)), (label, one, made))
    return frozenset(found.values())


COMPILED = {"numba", "winograd"}
"""Backends that compile a kernel for each element type: `make test` runs it in float32, slow tests in the others."""


def is_single(made: Call, signature: LayoutSignature) -> bool:
    """Whether neither 64 nor 16 bits are stored for any float."""
    return not (is_double(made) or is_narrow(signature))


def each_element_type(check: Callable[[Case, set[bool]], None]) -> Any:
    """Turn a check of a case into a test per kernel and op class; of compiled kernels, into a fast and a slow one.

    The check takes the values of `is_single` that it should try.
    """
    params = []
    for label, kernel, op, mark, test_id in _kernel_params():
        if kernel.backend in COMPILED:
            params.append(pytest.param(label, kernel, op, {True}, marks=mark, id=test_id))
            slow = [mark, pytest.mark.slow] if mark else pytest.mark.slow
            params.append(pytest.param(label, kernel, op, {False}, marks=slow, id=f"{test_id}-other-types"))
        else:
            params.append(pytest.param(label, kernel, op, {True, False}, marks=mark, id=test_id))

    @pytest.mark.parametrize(("label", "kernel", "op", "singles"), params)
    def test(label: str, kernel: Kernel, op: type[Op], singles: set[bool]) -> None:
        cases = [(label, kernel, made) for made in accepted(kernel, op)]
        run_all(check, [(case_id(case), (case, singles)) for case in cases])

    return named_like(check, test)


def _kernel_params() -> Iterator[tuple[str, Kernel, type[Op], Any, str]]:
    """Yield each device, kernel and op class with the marker and the name of their test."""
    for label, kernel, op in kernels_by_op():
        test_id = f"{label}-{kernel.backend}-{type(kernel).__name__}-{op.__name__}"
        yield label, kernel, op, pytest.mark.gpu if label == "cuda" else (), test_id


def each_kernel(
    *, applies: Callable[[Case], bool] = lambda _: True, compiled_is_slow: bool = False
) -> Callable[[Callable[[Case], None]], Any]:
    """Turn a check of a case into a test per kernel and op class, which calls it for every case that it applies to.

    Calls are built when the first test runs: that takes long. Tests on a GPU carry the marker.
    """
    params = []
    for label, kernel, op, mark, test_id in _kernel_params():
        is_slow = compiled_is_slow and kernel.backend in COMPILED
        params.append(pytest.param(label, kernel, op, marks=pytest.mark.slow if is_slow else mark, id=test_id))

    def decorate(check: Callable[[Case], None]) -> Any:
        @pytest.mark.parametrize(("label", "kernel", "op"), params)
        def test(label: str, kernel: Kernel, op: type[Op]) -> None:
            cases = [(label, kernel, made) for made in accepted(kernel, op)]
            run_all(check, [(case_id(case), (case,)) for case in cases if applies(case)])

        return named_like(check, test)

    return decorate


@pytest.fixture(scope="module", autouse=True)
def two_threads() -> Iterator[None]:
    """What is large enough is shared out among two, however many tests have otherwise."""
    with using_threads(2):
        yield


@each_element_type
def test_agrees_with_the_reference_repeatedly_and_keeps_its_operands(case: Case, singles: set[bool]) -> None:
    device, one = devices()[case[0]], case[1]
    for signature in signatures(device, one, case[2]):
        if is_single(case[2], signature) not in singles:
            continue
        if is_narrow(signature) and case not in exemplars():
            continue  # how elements of fewer bits are read and written is the same for all elementwise ops
        made = for_signature(case[2], signature)
        runs_right(device, one, made, signature, evaluate(made.node.outputs, made.feeds))


def runs_right(
    device: Device, one: Kernel, made: Call, signature: LayoutSignature, expected: Sequence[np.ndarray]
) -> None:
    inputs = operands(device, made, signature)
    outputs = [
        array(device, value.type, None, layout)
        for value, layout in zip(made.node.outputs, signature.outputs, strict=True)
    ]
    run = bound(device, one, made, signature, inputs, outputs)
    given = [device.fetch(x) for x in inputs]
    run()
    results = [(value.type, layout) for value, layout in zip(made.node.outputs, signature.outputs, strict=True)]
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


@each_element_type
def test_nan_stays_nan(case: Case, singles: set[bool]) -> None:
    """A kernel that hid NaN (a ReLU that makes 0 of it) would keep the guard from seeing it."""
    device, one, made = devices()[case[0]], case[1], case[2]
    spoiled = tuple(
        np.full_like(x, np.nan) if value.dtype.is_float else x
        for value, x in zip(made.node.inputs, made.operands, strict=True)
    )
    bad = Call(made.node, spoiled)
    with np.errstate(all="ignore"):
        expected = evaluate(bad.node.outputs, bad.feeds)
    for signature in {is_narrow(found): found for found in signatures(device, one, bad)}.values():
        if is_single(made, signature) not in singles:
            continue
        outputs = [
            array(device, value.type, None, layout)
            for value, layout in zip(made.node.outputs, signature.outputs, strict=True)
        ]
        for value, y in zip(made.node.outputs, outputs, strict=True):
            if value.dtype.is_float:
                device.upload(y, np.zeros(y.shape))  # so that what is not written is noticed
        bound(device, one, bad, signature, operands(device, bad, signature), outputs)()
        for value, y, right, layout in zip(made.node.outputs, outputs, expected, signature.outputs, strict=True):
            if value.dtype.is_float:
                assert np.isnan(fetch(device, y, value.type, layout))[np.isnan(right)].all()


@each_kernel(applies=has_several_results, compiled_is_slow=True)  # each selection of results is compiled
def test_computes_any_one_of_its_results(case: Case) -> None:
    device, one, made = devices()[case[0]], case[1], case[2]
    expected = evaluate(made.node.outputs, made.feeds)
    for wanted, right in enumerate(expected):
        signature = signatures(device, one, made)[0]
        inputs = operands(device, made, signature)
        outputs = [
            array(device, value.type, None, signature.outputs[i]) if i == wanted else None
            for i, value in enumerate(made.node.outputs)
        ]
        bound(device, one, made, signature, inputs, outputs)()
        agree(fetch(device, outputs[wanted], made.node.types[wanted], signature.outputs[wanted]), right)


@each_kernel(applies=lambda case: any(over(case[2])) and case in exemplars())
def test_an_operand_is_overwritten_only_if_the_op_allows_it(case: Case) -> None:
    device, one, made = devices()[case[0]], case[1], case[2]
    for signature in {is_narrow(found): found for found in signatures(device, one, made)}.values():
        given = for_signature(made, signature)
        right = evaluate(given.node.outputs, given.feeds)
        for result, layout in zip(made.node.outputs, signature.outputs, strict=True):
            for operand in made.op.inplace_operands(result.index, made.node.inputs):
                place = made.node.inputs.index(operand)
                if operand.type == result.type and signature.inputs[place] == layout:
                    inputs = operands(device, given, signature)
                    outputs = [
                        array(device, value.type, None, how)
                        for value, how in zip(made.node.outputs, signature.outputs, strict=True)
                    ]
                    outputs[result.index] = inputs[place]
                    bound(device, one, given, signature, inputs, outputs)()
                    for output, wanted in zip(outputs, right, strict=True):
                        agree(device.fetch(output), wanted)


@pytest.mark.parametrize("label", devices())
def test_each_call_of_each_op_finds_a_kernel(label: str) -> None:
    for made in all_calls():
        kernel_candidates(made.node, devices()[label].kernels)  # raises with the reasons of all


@pytest.mark.parametrize("label", devices())
def test_each_kernel_takes_a_call(label: str) -> None:
    """Else nothing here says that it computes what it should, by itself or by packing operands for others."""
    device = devices()[label]
    taken = {one for _, one, _ in accepting()}
    for _, one, made in accepting():
        for signature in signatures(device, one, made) if one.backend in device.kernels else ():
            taken |= {
                repacking(device, value.type, PLAIN, layout)[1]
                for value, layout in zip(made.node.inputs, signature.inputs, strict=True)
                if layout.opaque is not None
            }
    ours = [one for one in registered_kernels(device.kernels) if type(one).__module__.startswith("netspec.")]
    idle = [one.label for one in ours if one not in taken and one.unavailable_reason() is None]
    assert idle == [], "no layer, op or sample reaches them: give the kernels `samples`"
