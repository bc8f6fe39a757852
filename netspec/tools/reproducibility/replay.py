"""Repeat a training step whose loss or gradient was not finite, from the capsule that the run has written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netspec.backends.openmp import using_threads
from netspec.backends.reference.interpreter import BadOperation
from netspec.compile import Compiler, ProgramKind
from netspec.data.uint8_lut import DeferredDecode
from netspec.errors import InputError, Location
from netspec.exchange.formats.native.hdf5 import CAPSULE, CapsuleFile, read_capsule
from netspec.files.damage import refuse_damage
from netspec.schema.language.provenance import origin_in_comment
from netspec.schema.load import load_train
from netspec.schema.yaml.reader import parse_yaml
from netspec.training.compiler import training_compiler
from netspec.training.diagnostics.call_record import FailedCall, ProgramCall
from netspec.training.diagnostics.capsule import environment, traced_results
from netspec.training.diagnostics.non_finite import bad_operation, failure_text, likely_fix
from netspec.training.environment import threads

THREADS = "OMP_NUM_THREADS"
MAX_THREADS_PER_CORE = 8


@dataclass(frozen=True)
class Replay:
    """A repeated step."""

    step: int
    """The failed step, counted from 1."""
    loss: float | None
    """Its loss; None for an update by the gradients of several batches."""
    identical: bool
    """Whether all results have the same bits as in the run."""
    results: int
    """Number of results that were compared."""
    deterministic: bool
    """Whether all kernels add in the same order each time, so that equal environments yield equal bits."""
    differences: Mapping[str, tuple[str, str]]
    """Differences from the run: `{"threads": ("8", "2")}`."""
    samples: tuple[int, ...]
    """Indices of the samples of the batch in the training data."""
    bad: BadOperation | None
    """The first operation whose result is not finite; None if the reference kernels find none."""
    message: str
    """The first value that is not finite, as text."""
    origin: str | None
    """File, line and column of the layer in the spec of the run."""
    hint: str
    """The likely reason, and what to do."""

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        differences = {name: {"run": then, "replay": now} for name, (then, now) in self.differences.items()}
        return {
            "step": self.step, "loss": self.loss, "identical": self.identical, "results": self.results,
            "deterministic": self.deterministic,
            "differences": differences, "samples": list(self.samples), "message": self.message, "origin": self.origin,
            "hint": self.hint, "first": None if self.bad is None else self.bad.as_json(),
        }  # fmt: skip


def replay(path: str | Path, *, device: str | None = None) -> Replay:
    """Repeat the failed step in a capsule, and find its first operation whose result is not finite.

    `device` is by default that of the run, and so is the number of threads, unless OMP_NUM_THREADS is set. Nothing is
    written. Raises `InputError` if the file is damaged or is not a capsule.

        >>> netspec.replay("runs/lenet/capsule-00000012.h5").message
    """
    capsule = read_capsule(path)
    facts = _facts(path, capsule)
    with _threads_of_run(facts["environment"]):
        return _replay(path, capsule, facts, device)


@contextmanager
def _threads_of_run(recorded: Mapping[str, Any]) -> Iterator[None]:
    """Compute with as many threads as the run inside the block, since sums are split among them."""
    text, own = str(recorded.get("threads")), threads()
    if os.environ.get(THREADS) or not text.isdecimal() or not 0 < int(text) <= MAX_THREADS_PER_CORE * own:
        yield
        return
    os.environ[THREADS] = text
    try:
        with using_threads(int(text)):
            yield
    finally:
        del os.environ[THREADS]


def _replay(path: str | Path, capsule: CapsuleFile, facts: Mapping[str, Any], device: str | None) -> Replay:
    recorded = facts["environment"]
    spec = load_train(parse_yaml(capsule.spec, f"{path}"))
    compiler = training_compiler(spec, device or recorded["device"])
    with refuse_damage(path, CAPSULE):
        compiler.decode_uint8(_images(capsule, facts["images"]))
    call = ProgramCall(
        ProgramKind(facts["program"]), facts["rows"], None, facts["global_batch"], capsule.inputs, facts["step"] - 1,
        tuple(facts["samples"]),
    )  # fmt: skip
    failed = FailedCall(call, capsule.states)
    _assign(path, capsule, compiler)
    results = traced_results(call, compiler)
    loss = float.fromhex(results.loss) if results.loss else None
    now = environment(compiler)
    differences = {name: (str(recorded.get(name)), value) for name, value in now.items() if value != recorded.get(name)}
    forward = bool(facts["loss"]) and facts["loss"] in ("nan", "inf", "-inf")
    bad = bad_operation(failed, compiler, forward=forward)
    message = (
        failure_text(bad, facts["step"], compiler) if bad is not None
        else "all results of the reference kernels are finite: the values come from a kernel of the device"
    )  # fmt: skip
    location = bad.scope.location if bad is not None else None
    return Replay(
        facts["step"], loss, results.sha256 == facts["sha256"] and results.loss == facts["loss"], results.results,
        spec.compile.deterministic, differences, tuple(facts["samples"]), bad, message, _origin(location),
        likely_fix(bad),
    )  # fmt: skip


def _facts(path: str | Path, capsule: CapsuleFile) -> dict[str, Any]:
    """Return the facts of a capsule. Raises `InputError` if one is missing or of a wrong type."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "step": int, "program": str, "rows": int, "global_batch": (int, type(None)), "samples": list, "images": dict,
        "loss": str, "sha256": str, "results": int, "environment": dict,
    }  # fmt: skip
    wrong = [name for name, kind in kinds.items() if not isinstance(capsule.facts.get(name, ...), kind)]
    if not wrong and capsule.facts["program"] not in list(ProgramKind):
        wrong = ["program"]
    if not wrong and not isinstance(capsule.facts["environment"].get("device"), str):
        wrong = ["environment.device"]
    if wrong:
        raise InputError(f"{path} lacks `{wrong[0]}`", expected="a capsule as netspec writes it")
    return capsule.facts


def _images(capsule: CapsuleFile, images: Mapping[str, Any]) -> dict[str, DeferredDecode]:
    """Return the decoding of the inputs that are images in bytes."""
    return {
        name: DeferredDecode(
            capsule.tables[name], tuple(image["shape"]), tuple((crop[0], crop[1], crop[2]) for crop in image["crops"])
        )
        for name, image in images.items()
    }


def _assign(path: str | Path, capsule: CapsuleFile, compiler: Compiler) -> None:
    """Set the states to those of the capsule. Raises `InputError` if they are not those of its spec."""
    types = compiler.states.types
    wrong = sorted(
        {name for name in {*types, *capsule.states} if getattr(capsule.states.get(name), "shape", None)
         != getattr(types.get(name), "shape", ())}
    )  # fmt: skip
    if wrong:
        raise InputError(f"{path} does not fit its own spec", expected="the states of the run", got=wrong[0])
    for name, array in capsule.states.items():
        compiler.states.assign(name, array)


def _origin(location: Location | None) -> str | None:
    """Return where a layer was written: the origin that the resolved spec names."""
    if location is None:
        return None
    return origin_in_comment(location) or str(replace(location, text=""))
