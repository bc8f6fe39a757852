"""Every kernel of every device computes the results of the op's `forward`, into given arrays.

A new backend is covered through its device. Calls that a kernel declines are skipped; other tests require a kernel for
each op.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

import netspec.distributed  # noqa: F401  # it registers the kernels of communication operations
from netspec.backends.device import Device
from netspec.backends.device_registry import DEVICES, open_device
from netspec.backends.kernel_check import (
    agree,
    array,
    bound,
    check_call,
    fetch,
    for_signature,
    is_narrow,
    operands,
    repacking,
    signatures,
)
from netspec.backends.op_call import OpCall, code_of, inplace_choices, is_double, own_calls
from netspec.backends.openmp import using_threads
from netspec.errors import NetspecError
from netspec.graph.kernel import Kernel, kernel_candidates, kernels_for, registered_kernels
from netspec.graph.layout import PLAIN, LayoutSignature
from netspec.graph.op import Op
from netspec.tools.verification.op_calls import all_calls
from tests.interpret import evaluate
from tests.registry.op_classes import op_classes
from tests.registry.parametrize import named_like, run_all

Case: TypeAlias = tuple[str, Kernel, OpCall]
"""A device, a kernel, and a call that the kernel accepts."""


@cache
def devices() -> dict[str, Device]:
    """The devices of this machine that compute."""
    opened = {}
    for label, cls in DEVICES.items():
        if cls.runs:
            try:
                opened[label] = open_device(label)
            except NetspecError:  # not available on this machine
                continue
    return opened


def kernels_by_op() -> list[tuple[str, Kernel, type[Op]]]:
    """Every (device, kernel, op class) with a registered kernel; devices that share an array library, once."""
    labels: dict[tuple[Any, Kernel, type[Op]], str] = {}
    for label, device in devices().items():
        library = getattr(device, "xp", label)
        for op in op_classes():
            for kernel in kernels_for(op, device.kernels):
                labels.setdefault((library, kernel, op), label)
    return [(label, kernel, op) for (_, kernel, op), label in labels.items()]


@cache
def calls_by_op() -> dict[type[Op], list[OpCall]]:
    """Return the calls that kernels are tested on, by op class."""
    calls: dict[type[Op], list[OpCall]] = {}
    for call in all_calls():
        calls.setdefault(type(call.op), []).append(call)
    # The calls are never freed: the garbage collector need not search them.
    gc.freeze()
    return calls


@cache
def samples_of(kernel: Kernel) -> list[OpCall]:
    """Return the samples of a kernel, always the same objects."""
    return list(own_calls(kernel))


def accepted(kernel: Kernel, op: type[Op]) -> list[OpCall]:
    """The calls of an op that the kernel accepts."""
    candidates = calls_by_op().get(op, []) + [call for call in samples_of(kernel) if type(call.op) is op]
    return [
        call
        for call in candidates
        if kernel.reject_reason(call.op, *(value.type for value in call.node.inputs)) is None
    ]


@cache
def accepting() -> list[Case]:
    """Every (device, kernel, call) that the kernel accepts."""
    return [(label, kernel, call) for label, kernel, op in kernels_by_op() for call in accepted(kernel, op)]


def case_id(case: Case) -> str:
    label, kernel, call = case
    float_type = next((value.dtype for value in (*call.node.inputs, *call.node.outputs) if value.dtype.is_float), "")
    return f"{label}-{kernel.backend}-{type(kernel).__name__}-{call.name}-{float_type}"


def has_several_results(case: Case) -> bool:
    """Results are selected in one precision only, since both select alike."""
    return len(case[2].node.outputs) > 1 and not is_double(case[2])


@cache
def exemplars() -> frozenset[Case]:
    """Return a case for each kernel and kind of code, in one precision.

    It is enough for checks that do not depend on computed values; each way of computing must be compiled.
    """
    cases: dict[Any, Case] = {}
    for label, kernel, call in accepting():
        if not is_double(call):
            cases.setdefault((label, kernel, code_of(call), inplace_choices(call)), (label, kernel, call))
    return frozenset(cases.values())


COMPILED = {"numba", "winograd"}
"""Backends that compile a kernel per element type.

float32 runs in `make test`; the other types are exhaustive tests, and some also run in `test_element_types.py` and
`numba/test_kernels.py`.
"""


def is_single(call: OpCall, signature: LayoutSignature) -> bool:
    """Whether all floats are stored in 32 bits."""
    return not (is_double(call) or is_narrow(signature))


def each_element_type(check: Callable[[Case, set[bool]], None]) -> Any:
    """Turn a check of a case into a test per kernel and op class; for compiled kernels, also an exhaustive one.

    The check gets the values of `is_single` that it should cover.
    """
    params = []
    for label, kernel, op, mark, test_id in _kernel_params():
        if kernel.backend in COMPILED:
            params.append(pytest.param(label, kernel, op, {True}, marks=mark, id=test_id))
            marks = [mark, pytest.mark.exhaustive] if mark else pytest.mark.exhaustive
            params.append(pytest.param(label, kernel, op, {False}, marks=marks, id=f"{test_id}-other-types"))
        else:
            params.append(pytest.param(label, kernel, op, {True, False}, marks=mark, id=test_id))

    @pytest.mark.parametrize(("label", "kernel", "op", "singles"), params)
    def test(label: str, kernel: Kernel, op: type[Op], singles: set[bool]) -> None:
        cases = [(label, kernel, call) for call in accepted(kernel, op)]
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
            cases = [(label, kernel, call) for call in accepted(kernel, op)]
            run_all(check, [(case_id(case), (case,)) for case in cases if applies(case)])

        return named_like(check, test)

    return decorate


@pytest.fixture(scope="module", autouse=True)
def two_threads() -> Iterator[None]:
    """Use two threads for large operations, whatever the number in other tests."""
    with using_threads(2):
        yield


@each_element_type
def test_agrees_with_the_reference_repeatedly_and_keeps_its_operands(case: Case, singles: set[bool]) -> None:
    device, kernel = devices()[case[0]], case[1]
    for signature in signatures(device, kernel, case[2]):
        if is_single(case[2], signature) not in singles:
            continue
        if is_narrow(signature) and case not in exemplars():
            continue  # all elementwise ops read and write narrow elements in the same way
        call = for_signature(case[2], signature)
        check_call(device, kernel, call, signature)


@each_element_type
def test_nan_stays_nan(case: Case, singles: set[bool]) -> None:
    """If a kernel turned NaN into another value (such as a ReLU into 0), the guard would not notice it."""
    device, kernel, call = devices()[case[0]], case[1], case[2]
    spoiled = tuple(
        np.full_like(x, np.nan) if value.dtype.is_float else x
        for value, x in zip(call.node.inputs, call.operands, strict=True)
    )
    bad = OpCall(call.node, spoiled)
    with np.errstate(all="ignore"):
        expected = evaluate(bad.node.outputs, bad.feeds)
    for signature in {is_narrow(candidate): candidate for candidate in signatures(device, kernel, bad)}.values():
        if is_single(call, signature) not in singles:
            continue
        outputs = [
            array(device, value.type, None, layout)
            for value, layout in zip(call.node.outputs, signature.outputs, strict=True)
        ]
        for value, y in zip(call.node.outputs, outputs, strict=True):
            if value.dtype.is_float:
                device.upload(y, np.zeros(y.shape))  # to notice elements that are not written
        bound(device, kernel, bad, signature, operands(device, bad, signature), outputs)()
        for value, y, right, layout in zip(call.node.outputs, outputs, expected, signature.outputs, strict=True):
            if value.dtype.is_float:
                assert np.isnan(fetch(device, y, value.type, layout))[np.isnan(right)].all()


@each_kernel(applies=has_several_results, compiled_is_slow=True)  # each selection of results is compiled
def test_computes_any_one_of_its_results(case: Case) -> None:
    device, kernel, call = devices()[case[0]], case[1], case[2]
    expected = evaluate(call.node.outputs, call.feeds)
    for index, right in enumerate(expected):
        signature = signatures(device, kernel, call)[0]
        inputs = operands(device, call, signature)
        outputs = [
            array(device, value.type, None, signature.outputs[i]) if i == index else None
            for i, value in enumerate(call.node.outputs)
        ]
        bound(device, kernel, call, signature, inputs, outputs)()
        agree(fetch(device, outputs[index], call.node.types[index], signature.outputs[index]), right)


@each_kernel(applies=lambda case: any(inplace_choices(case[2])) and case in exemplars())
def test_an_operand_is_overwritten_only_if_the_op_allows_it(case: Case) -> None:
    device, kernel, call = devices()[case[0]], case[1], case[2]
    for signature in {is_narrow(candidate): candidate for candidate in signatures(device, kernel, call)}.values():
        cast_call = for_signature(call, signature)
        right = evaluate(cast_call.node.outputs, cast_call.feeds)
        for result, layout in zip(call.node.outputs, signature.outputs, strict=True):
            for operand in call.op.inplace_operands(result.index, call.node.inputs):
                position = call.node.inputs.index(operand)
                if operand.type == result.type and signature.inputs[position] == layout:
                    inputs = operands(device, cast_call, signature)
                    outputs = [
                        array(device, value.type, None, layout)
                        for value, layout in zip(call.node.outputs, signature.outputs, strict=True)
                    ]
                    outputs[result.index] = inputs[position]
                    bound(device, kernel, cast_call, signature, inputs, outputs)()
                    for output, reference in zip(outputs, right, strict=True):
                        agree(device.fetch(output), reference)


@pytest.mark.parametrize("label", devices())
def test_each_call_of_each_op_finds_a_kernel(label: str) -> None:
    for call in all_calls():
        kernel_candidates(call.node, devices()[label].kernels)  # raises an error with the reasons of all kernels


@pytest.mark.parametrize("label", devices())
def test_each_kernel_takes_a_call(label: str) -> None:
    """A kernel without a call, or use for packing operands, would not be tested."""
    device = devices()[label]
    used = {kernel for _, kernel, _ in accepting()}
    for _, kernel, call in accepting():
        for signature in signatures(device, kernel, call) if kernel.backend in device.kernels else ():
            used |= {
                repacking(device, value.type, PLAIN, layout)[1]
                for value, layout in zip(call.node.inputs, signature.inputs, strict=True)
                if layout.opaque is not None
            }
    ours = [kernel for kernel in registered_kernels(device.kernels) if type(kernel).__module__.startswith("netspec.")]
    idle = [kernel.label for kernel in ours if kernel not in used and kernel.unavailable_reason() is None]
    assert idle == [], "no layer, op or sample reaches them: give the kernels `samples`"
