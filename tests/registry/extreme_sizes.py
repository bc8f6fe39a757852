"""Plan every layer and loss with extreme values in each field and input size, under limits of memory and time.

    python -m tests.registry.extreme_sizes [--samples N] [--extremes NUMBER …] [CLASS …]

A child process with 4 GiB of address space plans them, each configuration within `SECONDS` of CPU time. A net
must be accepted, or refused with a located error, before anything large is computed. Prints a line for every other
outcome, then totals, and exits with 1 if there was any.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import netspec.layers
import netspec.solvers  # noqa: F401  registers the solvers
from netspec.compile import Compiler
from netspec.errors import InputError
from netspec.schema.specs.kinds import SOLVERS
from netspec.tools.planning.plan import costs
from netspec.tools.verification.cases import SampleCase, cases
from tests.exchange.nets import Net

EXTREMES = 2**31 - 1, 2**37, 10**18
SECONDS = 10.0
"""Processor time for a configuration; most take a few milliseconds, those just below the limits a few seconds."""
ADDRESS_SPACE = 4 * 2**30
SOLVER = SOLVERS.parse({"type": "SGD", "learning_rate": 0.1})


class OutOfTimeError(Exception):
    """A configuration was not accepted or refused in time."""


def integers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the paths of all integers in the fields of a sample."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from integers(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from integers(item, (*path, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


def replaced(value: Any, path: tuple[Any, ...], number: int) -> Any:
    """Return the fields with another number at `path`."""
    if not path:
        return number
    if isinstance(value, dict):
        return {**value, path[0]: replaced(value[path[0]], path[1:], number)}
    items = list(value)
    items[path[0]] = replaced(items[path[0]], path[1:], number)
    return items


def configurations(case: SampleCase, extremes: Sequence[int]) -> Iterator[tuple[str, Any, Sequence[tuple[int, ...]]]]:
    """Yield a description, the fields, and the input shapes without the batch, for each extreme value."""
    fields, shapes = dict(case.sample.fields), [shape[1:] for shape in case.sample.shapes]
    defaults = {
        name: field.default
        for name, field in type(case.spec()).model_fields.items()
        if name not in fields and isinstance(field.default, int) and not isinstance(field.default, bool)
    }
    for number in extremes:
        for name in defaults:
            yield f"{name}: {number}", {**fields, name: number}, shapes
        for path in integers(fields):
            yield f"{'.'.join(map(str, path))}: {number}", replaced(fields, path, number), shapes
        for axis in range(max(map(len, shapes), default=0)):
            longer = [(*shape[:axis], number, *shape[axis + 1 :]) if axis < len(shape) else shape for shape in shapes]
            yield f"axis {axis + 1} of all inputs: {number}", fields, longer
            for index, shape in enumerate(longer):
                if len(shapes) > 1 and shape != shapes[index]:
                    yield f"axis {axis + 1} of input {index}: {number}", fields, replaced(shapes, (index,), shape)  # type: ignore[arg-type]  # any item


def net_of(case: SampleCase, fields: Any, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """Return a trainable net with a layer or loss of these fields, and a separate parameter."""
    inputs = {
        f"x{index}": {"shape": list(shape), "dtype": dtype}
        for index, (shape, dtype) in enumerate(zip(shapes, case.sample.dtypes, strict=True))
    }
    entry = {**fields, "type": case.type, "name": "sample", "from": list(inputs)}
    trained = {"name": "trained", "type": "Parameter", "shape": [1], "from": "x0"}
    losses: list[Any] = [{"type": "Value", "name": "other", "from": "trained"}]
    if case.kind == "loss":
        return {"netspec": 1, "inputs": inputs, "layers": [trained], "losses": [*losses, entry]}
    losses.append({"type": "Value", "from": "sample"})
    return {"netspec": 1, "inputs": inputs, "layers": [entry, trained], "losses": losses}


def outcome(net: dict[str, Any]) -> str:
    """Return `accepted`, `refused`, or a description of the failure."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        costs(Compiler(Net.of(net).spec, solver=SOLVER, device="null"), 1)  # type: ignore[arg-type]  # a solver's spec
    except InputError:
        return "refused"
    except OutOfTimeError:
        return f"took more than {SECONDS:g} seconds"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return "accepted"


def run(classes: Sequence[str], begin: int, extremes: Sequence[int], samples: int | None) -> None:
    """Print `NUMBER`, then `TAB description TAB outcome`, for each configuration of the classes from `begin` on."""

    def out_of_time(*_: object) -> None:
        raise OutOfTimeError

    signal.signal(signal.SIGVTALRM, out_of_time)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    number = 0
    for case in cases("layer", "loss"):
        if (classes and case.type not in classes) or (samples is not None and case.number >= samples):
            continue
        for label, fields, shapes in configurations(case, extremes):
            number += 1
            if number > begin:
                print(number, end="", flush=True)
                print(f"\t{case.id}, {label}\t{outcome(net_of(case, fields, shapes))}", flush=True)


def failures(arguments: Sequence[str], totals: Counter[str]) -> Iterator[str]:
    """Yield the failure of each configuration that was neither accepted nor refused, and count all in `totals`.

    If a library ends the child (a division by 0, an access out of bounds), a new one continues after it.
    """
    begin = 0
    while True:
        child = [sys.executable, "-m", "tests.registry.extreme_sizes", f"--begin={begin}", *arguments]
        process = subprocess.run(child, capture_output=True, text=True, check=False)
        lines = [line.split("\t") for line in process.stdout.splitlines()]
        for number, *reported in lines:
            begin = int(number)
            label, result = reported or (f"configuration {number}", f"exit status {process.returncode}")
            is_fine = result in ("accepted", "refused")
            totals[result if is_fine else "failed"] += 1
            if not is_fine:
                yield f"{label}: {result}"
        if process.returncode == 0:
            return
        if not lines:
            totals["failed"] += 1
            yield process.stderr[-300:]
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", help="names of the layers and losses to check [all]")
    parser.add_argument("--samples", type=int, help="check this many samples of each class [all]")
    parser.add_argument("--extremes", type=int, nargs="+", default=EXTREMES, help="try these values [%(default)s]")
    parser.add_argument("--begin", type=int, help=argparse.SUPPRESS)  # of a child
    arguments = parser.parse_args()
    if arguments.begin is not None:
        run(arguments.classes, arguments.begin, arguments.extremes, arguments.samples)
        return
    totals: Counter[str] = Counter()
    for line in failures(sys.argv[1:], totals):
        print(line, flush=True)
    print(", ".join(f"{totals[key]:,} {key}" for key in ("accepted", "refused", "failed")))
    sys.exit(1 if totals["failed"] else 0)


if __name__ == "__main__":
    main()
