"""Capsules: files with everything that repeats a training step whose loss or gradient was not finite."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from netspec.backends.states import States
from netspec.compile import LOSS, Compiler, ProgramKind
from netspec.data.uint8_lut import DeferredDecode
from netspec.errors import RunError
from netspec.exchange.formats.native.hdf5 import CapsuleFile, write_capsule
from netspec.schema.language.provenance import origin_in_comment, resolved_yaml
from netspec.schema.specs.train import TrainSpec
from netspec.training.compiler import training_compiler
from netspec.training.diagnostics.call_record import FailedCall, ProgramCall
from netspec.training.environment import machine, threads, versions
from netspec.training.events import format_bytes


@dataclass(frozen=True)
class StepResults:
    """Results of a call of a program; equal fields mean bit-identical results."""

    loss: str
    """The loss as hexadecimal digits, `nan` or `inf`; empty if the program has none."""
    sha256: str
    """Hash of the results of all nodes, up to a loss that is not finite."""
    results: int
    """Number of these results."""


def traced_results(call: ProgramCall, compiler: Compiler) -> StepResults:
    """Run a call node by node, which may change states, and return its results."""
    program, digest, count = call.program(compiler), hashlib.sha256(), 0
    program.write(call.inputs)
    for _, results in program.trace():
        for result in results:
            digest.update(np.ascontiguousarray(result).tobytes())
            count += 1
    loss = float(program.read(LOSS)[LOSS]).hex() if LOSS in program.plan.graph.outputs else ""
    return StepResults(loss, digest.hexdigest(), count)


def environment(compiler: Compiler) -> dict[str, str]:
    """Return what bit-identical results depend on: versions, machine, threads and device."""
    return {**versions(), **machine(), "threads": str(threads()), "device": compiler.device.name}


@dataclass(frozen=True)
class SingleCall:
    """A failed call of a training on one worker, which one process can repeat."""

    failed: FailedCall
    spec: TrainSpec
    compiler: Compiler


def on_one_worker(
    failed: FailedCall, full: Mapping[str, Any], spec: TrainSpec, compiler: Compiler
) -> SingleCall | None:  # fmt: skip
    """Return a failed call of one of several workers, without the others: this worker's batch and the parameters.

    `full` has the parameters and statistics of which this worker has only a part, or none. States of the solver that
    are not complete on this worker have their first values, since the loss and its gradients do not depend on them.
    None if a training on one worker has no call with the same inputs.
    """
    alone = spec.model_copy(update={"parallel": None})
    single = training_compiler(alone, compiler.device.name)
    single.decode_uint8(compiler.uint8_inputs)
    known, read = {**failed.states, **full}, failed.call.inputs
    kinds = [single.batch_program, *([] if compiler.uint8_inputs else [ProgramKind.GRADIENTS])]
    for kind in kinds:
        names = single.graph(kind, failed.call.rows, failed.call.rows).inputs().keys()
        if names <= read.keys():
            break
    else:
        return None
    for name, type_ in single.states.types.items():
        if getattr(known.get(name), "shape", None) == type_.shape:
            single.states.assign(name, known[name])
    call = replace(
        failed.call, kind=kind, stage=None, global_batch=failed.call.rows, pending=None,
        inputs={name: read[name] for name in names},
    )  # fmt: skip
    return SingleCall(FailedCall(call, dict(single.states)), alone, single)


def save_capsule(path: Path, single: SingleCall) -> None:
    """Write a capsule of a call. The states are afterwards those before the call.

    Raises `RunError`, also if the disk does not have the space. The file is built in memory, since libhdf5 ends the
    process when the disk is full.
    """
    failed, compiler = single.failed, single.compiler
    call, states = failed.call, compiler.states
    arrays = (*failed.states.values(), *call.inputs.values())
    needed, free = sum(array.nbytes for array in arrays), shutil.disk_usage(path.parent).free
    if free < needed:
        raise RunError(f"{path} needs {format_bytes(needed)}, and its disk has {format_bytes(free)} left")
    _assign(states, failed.states)
    results = traced_results(call, compiler)
    _assign(states, failed.states)
    decoded: Mapping[str, DeferredDecode] = compiler.uint8_inputs
    facts: dict[str, Any] = {
        "step": call.step + 1,
        "program": str(call.kind),
        "rows": call.rows,
        "global_batch": call.global_batch,
        "samples": [int(index) for index in call.samples],
        "images": {name: {"shape": image.shape, "crops": image.parts} for name, image in decoded.items()},
        "loss": results.loss,
        "sha256": results.sha256,
        "results": results.results,
        "environment": environment(compiler),
    }
    roles = {name: compiler.info[name].role for name in states}
    read = {name: np.asarray(array) for name, array in call.inputs.items()}
    tables = {name: image.table for name, image in decoded.items()}
    text = resolved_yaml(single.spec, origin_in_comment)
    write_capsule(path, CapsuleFile(dict(failed.states), read, tables, text, facts), roles)


def _assign(states: States, arrays: Mapping[str, Any]) -> None:
    for name, array in arrays.items():
        states.assign(name, array)
