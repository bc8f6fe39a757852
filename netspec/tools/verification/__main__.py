"""The program that `netspec.backends.verification` starts: checks a device, and prints one event per line as JSON.

Its argument is the request as JSON. A check that crashes or hangs takes this process with it; the events tell which.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, TextIO, TypeAlias

import numpy as np

from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.backends.failures import OutOfMemory
from netspec.backends.kernel_check import WrongResult, array, check_call, for_signature, is_narrow, signatures
from netspec.backends.op_call import OpCall, code_of, is_double, own_calls
from netspec.backends.verification import CheckKind, DeviceCheck
from netspec.errors import NetspecError
from netspec.graph.kernel import Kernel, kernel_candidates, kernels_for, registered_kernels
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.shape import Reorder
from netspec.graph.types import DType, TensorType
from netspec.tools.verification.op_calls import all_calls, quick_calls
from netspec.tools.verification.trainings import NETS, check_training, precisions

BETWEEN_WORKERS = {"workers", "nccl"}
"""Backends that need several workers."""
CheckRun: TypeAlias = tuple[str, Callable[[], None]]
"""A part of a check: a label, and a function that raises an error if the part fails."""


def run_checks(request: dict[str, Any], emit: Callable[..., None]) -> None:
    """Run all checks that have no result yet, until there is no time left."""
    ends, done, quick = time.monotonic() + request["seconds"], request["done"], request["quick"]
    try:
        device = open_device(request["device"])
        disable(device, (DeviceCheck(**check) for check in done.values()))
        absent = unavailable_kernels(device)
        kernels = checked_kernels(device, request["only"], quick=quick)
        trainings = checked_trainings(device, quick=quick)
    except NetspecError as error:
        emit("unusable", reason=error.summary)
        return
    names = [name for name in (*kernels, *absent, *trainings) if request["only"] in name]
    plan: list[tuple[str, CheckKind]] = [(name, "training" if name in trainings else "kernel") for name in names]
    emit("plan", checks=plan)
    for name, kind in plan:
        if name in done:
            continue
        if time.monotonic() > ends:
            break
        emit("begin", name=name, kind=kind)
        if name in absent:
            emit("check", check=asdict(DeviceCheck(name, kind, "skipped", reason=absent[name])), transient=False)
            continue
        runs = kernel_runs(device, *kernels[name], quick=quick) if name in kernels else [("", trainings[name])]
        check, problem = run_check(device, name, kind, runs, emit)
        emit("check", check=asdict(check), transient=isinstance(problem, OutOfMemory))
        if problem is not None and not isinstance(problem, WrongResult) and is_unusable(device):
            emit("restart")  # after some errors of CUDA, all later calls of the process fail
            return
        disable(device, [check])
    emit("done")


def run_check(
    device: Device,
    name: str,
    kind: CheckKind,
    runs: Iterable[tuple[str, Callable[[], None]]],
    emit: Callable[..., None],
) -> tuple[DeviceCheck, Exception | None]:
    """Run a check to its end or to its first error; return the result, and the error."""
    count = 0
    for label, run in runs:
        emit("call", call=label)
        try:
            run()
            device.wait()
        except OutOfMemory as error:
            return DeviceCheck(name, kind, "skipped", count, error.summary), error
        except Exception as error:  # of any library
            kind_of_error = "" if isinstance(error, (WrongResult, NetspecError)) else f"{type(error).__name__}: "
            place = f"{label}: " if label else ""
            reason = " ".join(f"{place}{kind_of_error}{error}".split())
            return DeviceCheck(name, kind, "failed", count, reason[:500]), error
        count += 1
    return DeviceCheck(name, kind, "passed", count), None


def disable(device: Device, checks: Iterable[DeviceCheck]) -> None:
    """Exclude kernels that failed."""
    reasons = {check.name: reason for check in checks if (reason := check.disabled_reason) is not None}
    device.disabled_kernels = {**device.disabled_kernels, **reasons}


def is_unusable(device: Device) -> bool:
    """Whether a device can't copy arrays any more."""
    kind, values = TensorType((2,), DType.FLOAT32), np.array([1.0, 2.0], np.float32)
    try:
        return not np.array_equal(device.fetch(array(device, kind, values)), values)
    except Exception:  # of any library
        return True


def unavailable_kernels(device: Device) -> dict[str, str]:
    """Reasons why kernels of a device can run nothing on this machine, by label."""
    kernels = registered_kernels(device.kernels)
    return {kernel.label: reason for kernel in kernels if (reason := kernel.unavailable_reason()) is not None}


def checked_kernels(device: Device, only: str = "", *, quick: bool) -> dict[str, tuple[Kernel, list[OpCall]]]:
    """The kernels of a device by label, each with calls that it accepts; those whose labels contain `only`.

    On a GPU the reference kernels are checked too, on the ops that only they compute.
    """
    backends = [name for name in device.kernels if name not in BETWEEN_WORKERS]
    is_host = getattr(device, "xp", np) is np
    calls: dict[Kernel, list[OpCall]] = {
        kernel: []
        for kernel in registered_kernels(backends)
        if only in kernel.label and kernel.unavailable_reason() is None and not (kernel.rank == 0 and is_host)
    }
    for call in (quick_calls() if quick else all_calls()) if calls else ():
        for kernel in kernels_for(type(call.op), backends):
            if kernel in calls and _accepts(device, kernel, call):
                calls[kernel].append(call)
    for kernel, of_kernel in calls.items():
        if not (quick and of_kernel):
            of_kernel += own_calls(kernel)
    return {kernel.label: (kernel, of_kernel) for kernel, of_kernel in calls.items() if of_kernel}


def _accepts(device: Device, kernel: Kernel, call: OpCall) -> bool:
    if kernel.rank > 0:
        return kernel.reject_reason(call.op, *(value.type for value in call.node.inputs)) is None
    return not isinstance(call.op, Reorder) and kernel_candidates(call.node, device.kernels).kernels[0] is kernel


def kernel_runs(device: Device, kernel: Kernel, calls: Iterable[OpCall], *, quick: bool) -> Iterator[CheckRun]:
    """Yield checks of a kernel with their labels: of each call, in each layout and element type that it offers.

    The short form has one layout of each call, and one in 16 bits.
    """
    seen_codes = set[Any]()
    for call in calls:
        offered = signatures(device, kernel, call)
        if kernel.required_dtypes:
            offered = [signature for signature in offered if is_narrow(signature)]
        narrow = [] if is_double(call) or code_of(call) in seen_codes else [*filter(is_narrow, offered)]
        wide = [signature for signature in offered if not is_narrow(signature)]
        for signature in [*wide[:1], *narrow[: not seen_codes]] if quick else [*wide, *narrow]:
            layouts = " ".join(map(str, (*signature.inputs, *signature.outputs)))
            yield f"{call.name} ({layouts})", partial(_check, device, kernel, call, signature)
        seen_codes.add(code_of(call))


def _check(device: Device, kernel: Kernel, call: OpCall, signature: LayoutSignature) -> None:
    rounded_twice = kernel.tf32 or is_narrow(signature)
    check_call(device, kernel, for_signature(call, signature), signature, rounded_twice=rounded_twice)


def checked_trainings(device: Device, *, quick: bool) -> dict[str, Callable[[], None]]:
    """Trainings by name: of each net in each precision; in the short form, of one net in float32."""
    pairs = [(net, precision) for net in NETS for precision in precisions(device)]
    return {
        f"training of a {net} in {precision}": partial(check_training, device, net, precision)
        for net, precision in (pairs[:1] if quick else pairs)
    }


def print_events(stream: TextIO) -> Callable[..., None]:
    """A function that prints an event to a stream."""

    def emit(event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=stream, flush=True)

    return emit


if __name__ == "__main__":
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may print to stdout
    run_checks(json.loads(sys.argv[1]), print_events(events))
