"""Training: from a spec to a run directory with weights, checkpoints and logs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from netspec.compile import Compiler, Purpose
from netspec.data.loader import Loader, open_loader
from netspec.errors import InputError
from netspec.exchange.checkpoints import find_latest_checkpoint
from netspec.exchange.hdf5 import read_checkpoint
from netspec.graph.types import DType
from netspec.schema.load import Overrides, Source, load_train
from netspec.schema.provenance import resolved_yaml
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.train.evaluation import Evaluation, open_test_loader, ranges, wanted_inputs
from netspec.train.events import Event, Listener, LogFiles, tell
from netspec.train.interrupt import Signals
from netspec.train.loop import Loop, Progress
from netspec.train.model import load_weights
from netspec.train.resume import compare
from netspec.train.rundir import RunDir, open_run_dir


@dataclass(frozen=True)
class Run:
    """A finished training."""

    run_dir: Path
    steps: int
    """Steps done in all, those before a resume included."""
    seconds: float
    """Wall time of this call."""
    test: Evaluation | None
    """The last evaluation."""
    weights: Path
    log: Path


class Interrupted(KeyboardInterrupt):
    """The training was asked to stop; it finished the step and wrote a checkpoint."""

    def __init__(self, run_dir: Path, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.run_dir, self.step = run_dir, step


def run(
    source: Source | TrainSpec,
    overrides: Overrides = (),
    *,
    run_dir: str | Path | None = None,
    resume: bool = False,
    weights: str | Path | None = None,
    device: str = "auto",
    listeners: Sequence[Listener] = (),
) -> Run:
    """Train as the spec says.

    `resume` goes on from the newest sound checkpoint of the run directory, to bitwise the weights that an
    uninterrupted run reaches. `weights` starts from a file instead: parameters that fit by name and shape are taken.
    Raises `InputError` (the spec, the data, the checkpoint), `RunError` (a loss that is not finite) or `Interrupted`.
    """
    began = time.perf_counter()
    if resume and weights is not None:
        raise InputError("--resume and --weights exclude each other: a checkpoint holds the weights")
    spec = source if isinstance(source, TrainSpec) else load_train(source, overrides)
    compiler = trainer(spec, device)
    with ExitStack() as stack:
        loader = stack.enter_context(open_training_loader(spec, compiler))
        test = stack.enter_context(open_test_loader(spec, compiler, loader.learned)) if spec.data.test else None
        compiler.program(Purpose.TRAIN, loader.batch_sizes[0])  # what can't run here says so before a folder is made
        folder = open_run_dir(spec.name or spec.net.name, Path(run_dir) if run_dir else None, resume=resume)
        warnings: list[str] = []
        if resume:
            progress = _restore(folder, spec, compiler, loader, warnings)
        else:
            progress = Progress()
            if weights is not None:
                warnings += _fine_tune(compiler, weights)
        folder.write_spec(resolved_yaml(spec))
        log = stack.enter_context(LogFiles(folder.folder))
        everyone: list[Listener] = [log, *listeners]
        signals = stack.enter_context(Signals())
        loop = Loop(spec, compiler, loader, test, folder, everyone, signals, progress)
        for message in warnings:
            tell(everyone, "warning", message=message)
        tell(everyone, "start", **_facts(spec, compiler, loader, folder, loop))
        loop.run()
        seconds = time.perf_counter() - began
        found = loop.last_test
        if signals.stop is not None and progress.step < loop.total:
            raise Interrupted(folder.folder, progress.step)
        tell(
            everyone, "done", run_dir=str(folder.folder), steps=progress.step, seconds=round(seconds, 3),
            test=found.as_json() if found else None, weights=str(folder.weights), log=str(folder.log),
        )  # fmt: skip
    return Run(folder.folder, progress.step, seconds, found, folder.weights, folder.log)


def trainer(spec: TrainSpec, device: str) -> Compiler:
    """The compiler of a training's net and solver."""
    assert isinstance(spec.solver, SolverSpec)
    precision = DType(spec.train.precision)
    return Compiler(spec.net, solver=spec.solver, dtype=precision, device=device, seed=spec.train.seed)


def open_training_loader(spec: TrainSpec, compiler: Compiler) -> Loader:
    """The loader of the training data, with what the net's programs read."""
    wanted = wanted_inputs(compiler, [Purpose.TRAIN])
    return open_loader(
        spec.data.train, seed=spec.train.seed, wanted=wanted, ranges=ranges(compiler), known=spec.net.inputs
    )


def _facts(spec: TrainSpec, compiler: Compiler, loader: Loader, folder: RunDir, loop: Loop) -> Event:
    parameters = sum(compiler.info[name].value.type.size for name in compiler.names("parameter"))
    return {
        "name": spec.name or spec.net.name,
        "run_dir": str(folder.folder),
        "device": compiler.device.name,
        "precision": spec.train.precision,
        "parameters": parameters,
        "samples": loader.samples,
        "batch_size": loader.batch_size,
        "steps_per_epoch": loader.steps_per_epoch,
        "steps": loop.total,
        "step": loop.progress.step,
        "seed": spec.train.seed,
    }


def _fine_tune(compiler: Compiler, weights: str | Path) -> list[str]:
    loaded = load_weights(compiler, weights, partial=True).loaded
    fresh = sorted(set(compiler.names("parameter", "statistic")) - set(loaded))
    return [f"{len(loaded)} arrays taken from {weights}; start fresh: {', '.join(fresh)}"] if fresh else []


def _restore(folder: RunDir, spec: TrainSpec, compiler: Compiler, loader: Loader, warnings: list[str]) -> Progress:
    """States, cursor and progress from the newest sound checkpoint; from the start where there is none yet."""
    if folder.spec.exists():
        allowed = compare(load_train(folder.spec), spec)
        warnings += [f"changed since the run began: {one}" for one in allowed]
    found = find_latest_checkpoint(folder.checkpoints)
    warnings += found.notes
    if found.path is None:
        warnings.append("there is no checkpoint yet: starting from the beginning")
        return Progress()
    checkpoint = read_checkpoint(found.path)
    wanted = {name: info.value.type for name, info in compiler.info.items()}
    unfit = [name for name, kind in wanted.items() if getattr(checkpoint.states.get(name), "shape", None) != kind.shape]
    if unfit or set(checkpoint.states) - set(wanted):
        raise InputError(f"{found.path} is of another net or solver", expected=f"{len(wanted)} arrays", got=f"{unfit}")
    for name, array in checkpoint.states.items():
        compiler.states.assign(name, array)
    loader.restore(checkpoint.progress["loader"])
    return Progress.from_json(checkpoint.progress)
