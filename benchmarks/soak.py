"""Kills small trainings again and again, resumes them, and compares every bit with trainings that were not killed.

A training with one worker runs in a process that is forked from this one, where everything is imported already, so a
kill costs a few tenths of a second. Each kill has a target that the seed draws: the start, a step, an evaluation, a
write of a file, or a line of the log. The process reports when it reaches the target, and is killed (SIGKILL) after a
random delay; or it kills itself in the middle of a write: with half of the file written, before the file is flushed to
disk, before it gets its name, or after that. Trainings on two workers are those of `netspec verify-resume`.

After each kill, the newest checkpoint may not be older than before. A run that is complete must have the same bits as
the one that was not killed: weights, all states, progress, and every result in the log.

python -m benchmarks.soak [--kills 1000] [--two-workers 100] [--cases window,averages] [--seed 1] [--json]
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import netspec
from benchmarks import report
from benchmarks.alternate import BenchmarkError
from netspec.exchange.formats.native import hdf5_file
from netspec.tools.reproducibility.bit_comparison import compare_runs_bitwise
from netspec.training import loop, run_directory
from netspec.training.events import LogFiles
from netspec.training.run_directory import RunDir

KILLS_PER_RUN = 4
"""Number of kills after which a run may end."""


class Phase(IntEnum):
    """Part of a training in which it can be killed."""

    START = 0
    STEP = 1
    EVALUATION = 2
    WRITE = 3
    LOG = 4


SHARES = {Phase.START: 0.1, Phase.STEP: 0.35, Phase.EVALUATION: 0.2, Phase.WRITE: 0.25, Phase.LOG: 0.1}
"""Share of the kills that are aimed at each phase."""
STAGES = ("half written", "before the flush", "before the rename", "after the rename")
"""Moments in a write at which a training kills itself."""


@dataclass(frozen=True)
class Target:
    """A point at which a training is killed: when it enters a phase for the `entry`-th time, counted from 1."""

    phase: Phase
    entry: int
    delay: float
    """Seconds after which it is killed."""
    stage: str | None = None
    """The moment in a write at which it kills itself instead."""


@dataclass
class Case:
    """A small training, its uninterrupted run, and how often and how long that was in each phase."""

    name: str
    spec: dict[str, Any]
    folder: Path
    entries: dict[Phase, int] = field(default_factory=dict)
    seconds: dict[Phase, float] = field(default_factory=dict)

    @property
    def reference(self) -> Path:
        """The run that was not killed."""
        return self.folder / "reference"


@dataclass
class Outcome:
    """Kills, comparisons and failures of a soak."""

    kills: Counter[str] = field(default_factory=Counter)
    """Number of kills by phase, or by stage of a write."""
    by_case: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    """Number of trainings that ended before they were killed."""
    compared: int = 0
    """Number of complete runs that were compared."""
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Number of kills."""
        return sum(self.kills.values())


NET: dict[str, Any] = {
    "netspec": 1,
    "name": "points",
    "inputs": {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "fc1", "type": "Dense", "units": 16, "activation": "relu"},
        {"name": "norm", "type": "BatchNormalization"},
        {"name": "drop", "type": "Dropout", "rate": 0.2},
        {"name": "logits", "type": "Dense", "units": 3},
    ],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
    "metrics": [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}],
}
IMAGE_NET: dict[str, Any] = {
    **NET,
    "name": "images",
    "inputs": {"x": {"shape": [1, 6, 6]}, "label": {"shape": [3]}},
    "layers": [
        {"name": "conv", "type": "Conv2D", "filters": 4, "kernel_size": 3, "activation": "relu"},
        {"name": "flat", "type": "Flatten"},
        {"name": "drop", "type": "Dropout", "rate": 0.2},
        {"name": "logits", "type": "Dense", "units": 3},
    ],
    "losses": [{"type": "CategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
    "metrics": [{"type": "CategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}],
}


def write_data(folder: Path) -> None:
    """Write points of three classes, and the same as images."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(3, 6)) * 2
    for name, samples in (("train", 230), ("validation", 57), ("test", 40)):
        label = random.integers(0, 3, samples).astype(np.int32)
        x = (centers[label] + random.normal(size=(samples, 6))).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x, label=label)
        images = (x[:, None, None, :] + random.normal(size=(samples, 1, 8, 6))).astype(np.float32)
        np.savez(folder / f"{name}_images.npz", x=np.concatenate([images, images[..., :2]], 3), label=label)


def specs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the trainings by name."""
    points = {
        split: {"source": "npz", "path": str(folder / f"{split}.npz"), "batch_size": size}
        for split, size in (("train", 32), ("validation", 25), ("test", 25))
    }
    images = {split: {**fields, "path": str(folder / f"{split}_images.npz")} for split, fields in points.items()}
    encode = {"type": "CategoryEncoding", "num_tokens": 3, "apply_to": "label"}
    crop = {"height": 6, "width": 6, "apply_to": "x"}
    for split, fields in images.items():
        fields["transforms"] = [{"type": "CenterCrop", **crop}, encode]
        if split == "train":
            augmented = [{"type": "RandomCrop", **crop}, {"type": "RandomFlip", "apply_to": "x"}, encode]
            fields |= {"shuffle": True, "prefetch": 3, "transforms": [*augmented, {"type": "MixUp", "alpha": 0.4}]}
    adam = {"type": "Adam", "learning_rate": {"type": "CosineDecay", "initial": 0.01}, "global_clipnorm": 5.0}
    plateau = {"type": "ReduceLROnPlateau", "schedule": 0.01, "factor": 0.5, "patience": 1, "threshold": 0.1}
    often = {"max_steps": 40, "test_every": 5, "checkpoint_every": 4, "log_every": 3, "seed": 3}

    def points_with(**train: Any) -> dict[str, Any]:
        return {**points, "train": {**points["train"], "shuffle": True, **train}}

    return {
        "window": {"net": NET, "data": points_with(shuffle={"window": 50}), "solver": adam, "train": often},
        "augmentation": {
            "net": IMAGE_NET, "data": images, "solver": {"type": "SGD", "learning_rate": 0.02, "momentum": 0.9},
            "train": {**often, "checkpoint_every": 3},
        },
        "accumulation": {
            "net": NET, "data": points_with(batch_size=20), "solver": adam,
            "train": {**often, "accumulate": 3, "log_gradient_norm": True},
        },
        "averages": {"net": NET, "data": points_with(), "solver": {**adam, "ema": 0.9}, "train": often},
        "early stopping": {
            "net": NET, "data": points_with(), "solver": {"type": "RMSprop", "learning_rate": plateau},
            "train": {**often, "max_steps": 90, "monitor": "accuracy", "early_stopping": {"patience": 4}},
        },
    }  # fmt: skip


TWO_WORKERS: dict[str, tuple[str, dict[str, Any]]] = {
    "window": ("all_reduce", {}),
    "accumulation": ("sharded_optimizer", {}),
    "averages": ("top_k", {"density": 0.1}),
    "early stopping": ("local_sgd", {"every": 3}),
}
"""Trainings on two workers: name, strategy and its fields."""


class _Watch:
    """Follows a training in its process, and reports or ends it at a target."""

    def __init__(self, target: Target | None, memory: mmap.mmap, pipe: int) -> None:
        self.target, self.memory, self.pipe = target, memory, pipe
        self.entries: Counter[Phase] = Counter()
        self.seconds: Counter[Phase] = Counter()

    def install(self) -> None:
        """Wrap the functions in which a training spends its time."""
        enter = self.wrap
        loop.TrainingLoop._step = enter(loop.TrainingLoop._step, Phase.STEP)  # type: ignore[method-assign]
        loop.evaluate = enter(loop.evaluate, Phase.EVALUATION)  # type: ignore[attr-defined]
        LogFiles.__call__ = enter(LogFiles.__call__, Phase.LOG)  # type: ignore[method-assign]
        for module, name in ((hdf5_file, "write_atomically"), (run_directory, "write_text_atomically")):
            setattr(module, name, enter(getattr(module, name), Phase.WRITE))
        self.enter(Phase.START)

    def wrap(self, function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
        """Return a function that is in a phase while it runs."""

        @wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            before, began = self.memory[0], time.perf_counter()
            self.enter(phase, *arguments)
            try:
                return function(*arguments, **named)
            finally:
                self.memory[0] = before
                self.seconds[phase] += time.perf_counter() - began  # type: ignore[assignment]

        return wrapped

    def enter(self, phase: Phase, *arguments: Any) -> None:
        """Enter a phase."""
        self.memory[0] = phase
        self.entries[phase] += 1
        target = self.target
        if target is None or (target.phase, target.entry) != (phase, self.entries[phase]):
            return
        if target.stage is None:
            os.write(self.pipe, b".")
        elif phase is Phase.LOG:
            log: LogFiles = arguments[0]
            with log.path.open("a") as file:
                file.write('{"event": "log", "st')
            _end()
        else:
            _end_in_write(target.stage)


def _end_in_write(stage: str) -> None:
    """Make this process kill itself in its next write."""

    def half(path: Path, data: Any, **options: Any) -> NoReturn:
        content = data.encode() if isinstance(data, str) else bytes(data)
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        _end()

    rename = Path.replace

    def renamed(path: Path, target: Path) -> NoReturn:
        rename(path, target)
        _end()

    if stage == STAGES[0]:
        Path.write_bytes = Path.write_text = half  # type: ignore[assignment, method-assign]
    elif stage == STAGES[1]:
        os.fsync = _end  # type: ignore[assignment]
    else:
        Path.replace = _end if stage == STAGES[2] else renamed  # type: ignore[method-assign, assignment]


def _end(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


def run_piece(case: Case, run: Path, device: str, target: Target | None) -> Phase | None:
    """Train in a forked process until the target or the end; return the phase of the kill, None at the end.

    Raises `BenchmarkError` if the training fails.
    """
    memory, (reading, writing) = mmap.mmap(-1, 1), os.pipe()
    errors = case.folder / "errors.txt"
    pid = os.fork()
    if pid == 0:
        _train(case, run, device, _Watch(target, memory, writing), errors)
    os.close(writing)
    try:
        if target is not None and os.read(reading, 1):
            time.sleep(target.delay)
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(reading)
        status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Phase(memory[0])
    if status:
        raise BenchmarkError(f"{case.name}: the training ended with status {status}: {errors.read_text()}")
    return None


def _train(case: Case, run: Path, device: str, watch: _Watch, errors: Path) -> NoReturn:
    """Run the training in this process, and end it."""
    status = 1
    try:
        watch.install()
        netspec.train({"netspec": 1, **case.spec}, run_dir=run, resume="auto", device=device)
        facts = [[int(phase), watch.entries[phase], watch.seconds[phase]] for phase in Phase]
        (case.folder / "phases.json").write_text(json.dumps(facts))
        status = 0
    except BaseException as error:  # the parent reports it
        errors.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


class Soak:
    """Trainings that are killed until there were enough kills."""

    def __init__(self, cases: list[Case], device: str, seed: int) -> None:
        self.cases, self.device = cases, device
        self.outcome = Outcome()
        self._random = np.random.default_rng(seed)

    def prepare(self) -> None:
        """Load all libraries and kernels into this process, and train each case without a kill."""
        for case in self.cases:
            netspec.train({"netspec": 1, **case.spec}, run_dir=case.folder / "first", device=self.device)
            run_piece(case, case.reference, self.device, None)
            for number, entries, seconds in json.loads((case.folder / "phases.json").read_text()):
                case.entries[Phase(number)], case.seconds[Phase(number)] = entries, seconds
            self._compare(case, case.folder / "first")

    def run(self, kills: int) -> None:
        """Kill trainings, each case in turn, until there were `kills` kills."""
        number = 0
        while self.outcome.total < kills:
            case = self.cases[number % len(self.cases)]
            number += 1
            self._run_case(case, case.folder / f"killed-{number}", kills)
            if number % 10 == 0:
                report.say(f"{self.outcome.total} kills, {len(self.outcome.failures)} failures")

    def _run_case(self, case: Case, run: Path, kills: int) -> None:
        """Train a case to the end with kills, and compare the result."""
        folder, saved, killed = RunDir(run), -1, 0
        while True:
            target = self._target(case) if killed < KILLS_PER_RUN and self.outcome.total < kills else None
            try:
                phase = run_piece(case, run, self.device, target)
            except BenchmarkError as error:
                self.outcome.failures.append(str(error))
                return
            if phase is None:
                self.outcome.missed += target is not None
                break
            killed += 1
            stage = f": {target.stage}" if target is not None and target.stage else ""
            self.outcome.kills[f"{phase.name.lower()}{stage}"] += 1
            self.outcome.by_case[case.name] += 1
            newest = folder.newest_step()
            if (-1 if newest is None else newest) < saved:
                self.outcome.failures.append(f"{case.name}: the checkpoint of step {saved} is lost")
            saved = max(saved, -1 if newest is None else newest)
        self._compare(case, run)

    def _target(self, case: Case) -> Target:
        phase = Phase(self._random.choice(list(SHARES), p=list(SHARES.values())))
        entries = max(1, case.entries[phase] // 4)
        mean = case.seconds[phase] / case.entries[phase] if phase is not Phase.START else 0.2
        staged = phase is Phase.LOG or (phase is Phase.WRITE and self._random.random() < 0.5)
        stage = ("half written" if phase is Phase.LOG else str(self._random.choice(STAGES))) if staged else None
        entry = int(self._random.integers(1, entries + 1))
        return Target(phase, entry, float(self._random.uniform(0, 1.2 * mean)), stage)

    def _compare(self, case: Case, run: Path) -> None:
        """Compare a complete run, and remove it if it is bit-identical."""
        self.outcome.compared += 1
        differences = compare_runs_bitwise(case.reference, run).differences
        if differences:
            self.outcome.failures.append(f"{case.name}: {run.name}: {differences[0]} ({len(differences)} differences)")
        else:
            shutil.rmtree(run)


def kill_two_workers(folder: Path, kills: int, device: str, seed: int) -> dict[str, Any]:
    """Kill trainings on two workers, and return the number of kills and the first difference of each strategy."""
    results: dict[str, Any] = {}
    trainings = specs(folder)
    for number, (name, (strategy, fields)) in enumerate(TWO_WORKERS.items()):
        share = kills // len(TWO_WORKERS) + (number < kills % len(TWO_WORKERS))
        if not share:
            continue
        path = folder / f"{strategy}.yaml"
        spec = {"netspec": 1, **trainings[name], "parallel": {"strategy": strategy, **fields}}
        path.write_text(json.dumps(spec))
        check = netspec.verify_resume(path, steps=40, kills=share, workers=2, device=device, seed=seed)
        one = sum(kill.worker is not None for kill in check.kills)
        results[f"{strategy}, {name}"] = {
            "kills of one worker": one, "kills of both": len(check.kills) - one,
            "first difference": str(check.differences[0]) if check.differences else None,
        }  # fmt: skip
        report.say(f"two workers, {strategy}: {results[f'{strategy}, {name}']}")
    return results


def main() -> int:
    """Run the soak, and print its outcome; the exit status is 1 if a bit differed or a training failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="number of kills on one worker [1000]")
    parser.add_argument("--two-workers", type=int, default=0, help="number of kills on two workers [0]")
    parser.add_argument("--cases", help="train these, separated by commas [all]")
    parser.add_argument("--device", default="cpu", help="train on this device [cpu]")
    parser.add_argument("--seed", type=int, default=0, help="draw the kills from this seed [0]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # threads of kernels would not survive a fork
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        write_data(folder)
        trainings = specs(folder)
        names = options.cases.split(",") if options.cases else list(trainings)
        if unknown := set(names) - set(trainings):
            raise BenchmarkError(f"no such case: {', '.join(sorted(unknown))} (there are {', '.join(trainings)})")
        cases = [Case(case, trainings[case], folder / case.replace(" ", "_")) for case in names]
        for case in cases:
            case.folder.mkdir()
        soak = Soak(cases, options.device, options.seed)
        began = time.perf_counter()
        soak.prepare()
        soak.run(options.kills)
        two_workers = kill_two_workers(folder, options.two_workers, options.device, options.seed)
        with suppress(OSError):
            print(_text(soak.outcome, two_workers, time.perf_counter() - began, as_json=options.json))
        differ = [result for result in two_workers.values() if result["first difference"]]
    return 1 if soak.outcome.failures or differ else 0


def _text(outcome: Outcome, two_workers: dict[str, Any], seconds: float, *, as_json: bool) -> str:
    facts = {
        "kills": outcome.total, "by phase": dict(sorted(outcome.kills.items())), "by case": dict(outcome.by_case),
        "ended before the kill": outcome.missed, "runs compared": outcome.compared, "failures": outcome.failures,
        "two workers": two_workers, "seconds": round(seconds, 1),
    }  # fmt: skip
    if as_json:
        return json.dumps(facts, indent=2)
    lines = [f"{outcome.total} kills on one worker, {outcome.compared} runs compared, {len(outcome.failures)} failures"]
    lines += [f"  {count:5} {phase}" for phase, count in sorted(outcome.kills.items())]
    lines += [f"  {count:5} in the case `{case}`" for case, count in outcome.by_case.items()]
    lines += [f"failed: {failure}" for failure in outcome.failures]
    lines += [f"two workers, {name}: {result}" for name, result in two_workers.items()]
    return "\n".join([*lines, f"{seconds:.0f} s"])


if __name__ == "__main__":
    sys.exit(report.run(main))
