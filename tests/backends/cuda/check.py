"""`python -m tests.backends.cuda.check`: every check of every kernel of the backend `cuda` on the emulator.

`make test` leaves out cases with the same code as others, and uses one seed for random calls. Here all cases go through
all checks. Prints the errors, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import ctypes
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from netspec.backends.cuda import launch
from netspec.graph.kernel import kernels_for
from tests.backends.cuda.calls import KERNELS
from tests.backends.cuda.checks import CHECKS, Case, Check, Make, Placement, Trial, cases
from tests.backends.cuda.emulator import Emulator, compiler, extent
from tests.backends.cuda.random_calls import FAMILIES, Family, random_calls
from tests.backends.cuda.without_gpu import CupyDevice, load, wrapped

FUSED = ("-O2", "-ffp-contract=fast", *(["-mfma"] if platform.machine() in ("x86_64", "AMD64") else []))
"""Compiler options that contract a product and a sum to one instruction, as NVRTC does."""
MAX_ERRORS = 5
"""Number of errors of a kernel and a check that are printed."""


def random_cases(seed: int, families: Iterable[Family] = FAMILIES) -> Iterator[Case]:
    """The random calls of a seed, for each kernel that accepts them."""
    for result in random_calls(seed, families):
        types = [value.type for value in result.node.inputs]
        for kernel in kernels_for(type(result.op), ("cuda",)):
            if kernel.reject_reason(result.op, *types) is None:
                yield from cases(kernel, [result])


class HostCupy(CupyDevice):
    """CuPy's arrays over host memory, where NumPy reads and writes them."""

    def upload(self, array: Any, host: Any) -> None:
        values = np.asarray(host)
        assert values.shape == array.shape
        np.copyto(on_host(array), values, casting="unsafe")

    def fetch(self, array: Any) -> Any:
        return on_host(array).copy()


class CupyEmulator(Emulator):
    """Keeps address tables in CuPy's arrays."""

    def table(self, host: Any) -> Any:
        return wrapped(HostCupy.cupy, super().table(np.array(host)))


def on_host(array: Any) -> np.ndarray:
    """A NumPy array over the memory of a CuPy array, which must outlive it."""
    begin, end = extent(array)
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * (end - begin)).from_address(begin))
    return np.ndarray(array.shape, np.dtype(str(array.dtype)), memory, array.data.ptr - begin, array.strides)


def agrees_on_cupy_arrays(emulator: Emulator, case: Case) -> Check:
    """Compare with the reference on CuPy's own arrays: CuPy must not copy them, which needs a GPU."""
    device = HostCupy()
    trial = Trial(case, Placement(device, device))
    yield
    trial.check(emulator)


def errors(emulator: Emulator, check: Make, actual: Iterable[Case]) -> Iterator[str]:
    """Yield the errors of a check on cases; the kernels of all cases are compiled in one call."""
    started = list[tuple[Case, Any]]()
    for case in actual:
        try:
            run = check(emulator, case)
            next(run)
            started.append((case, run))
        except Exception as error:  # report it, and check the other cases
            yield f"{case.label}: {error!r}"
    for case, run in started:
        try:
            next(run, None)
        except Exception as error:
            yield f"{case.label}: {error!r}"


def why_no_cupy() -> str | None:
    """The reason why kernels cannot run on CuPy's arrays; None if they can."""
    if compiler() is None:
        return "there is no C++ compiler to run CUDA C++ with"
    try:
        HostCupy.cupy = load()
    except ImportError:
        return "CuPy is not installed: pip install cupy-cuda13x"
    return None


def main(arguments: Sequence[str]) -> int:
    """Check kernels, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.backends.cuda.check", description=__doc__)
    parser.add_argument("kernels", nargs="*", help="check kernels whose names contain one of these [all]")
    parser.add_argument("--seeds", nargs="*", type=int, help="check random calls of these seeds instead of all cases")
    parser.add_argument("--fused", action="store_true", help="contract products and sums, as NVRTC does")
    parser.add_argument("--cupy", action="store_true", help="only compare with the reference, on CuPy's arrays")
    options = parser.parse_args(arguments)
    began, totals, checks, engine = time.perf_counter(), Counter[str](), CHECKS, Emulator
    if options.cupy:
        reason = why_no_cupy()
        if reason is not None:
            print(f"Skipped: {reason}")
            return 0
        checks, engine = (agrees_on_cupy_arrays,), CupyEmulator
    emulator = engine(FUSED if options.fused else ())
    launch.use(emulator)
    groups: dict[str, Iterable[Case]] = {kernel.label: cases(kernel) for kernel in KERNELS}
    if options.seeds is not None:
        groups = {f"seed {seed}": random_cases(seed) for seed in options.seeds}
    for label, actual in groups.items():
        names = options.kernels or [""]
        expected = [case for case in actual if any(name in case.kernel.label for name in names)]
        totals["cases"] += len(expected)
        for check in checks:
            wrong = list(errors(emulator, check, expected))
            totals[f"errors of {check.__name__}"] += len(wrong)
            for error in wrong[:MAX_ERRORS]:
                print(f"{label}, {check.__name__}: {error}")
    totals["kernels"], totals["launches"] = len(emulator.launches), sum(emulator.launches.values())
    print(", ".join(f"{count} {kind}" for kind, count in totals.items()), f"{time.perf_counter() - began:.0f} s")
    return 1 if any(count for kind, count in totals.items() if kind.startswith("errors")) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
