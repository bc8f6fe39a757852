"""Capsules: files with everything that repeats a training step whose loss or gradient was not finite."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from netspec.compile import LOSS, Compiler
from netspec.data.uint8_lut import DeferredDecode
from netspec.exchange.formats.native.hdf5 import CapsuleFile, write_capsule
from netspec.schema.language.provenance import origin_in_comment, resolved_yaml
from netspec.schema.specs.train import TrainSpec
from netspec.training.call_record import FailedCall, ProgramCall
from netspec.training.environment import machine, threads, versions


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


def save_capsule(path: Path, failed: FailedCall, spec: TrainSpec, compiler: Compiler) -> None:
    """Write a capsule of a call. The states are afterwards those before the call. Raises `RunError`."""
    call, states = failed.call, compiler.states
    results = traced_results(call, compiler)
    for name, array in failed.states.items():
        states.assign(name, array)
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
    text = resolved_yaml(spec, origin_in_comment)
    write_capsule(path, CapsuleFile(dict(failed.states), read, tables, text, facts), roles)
