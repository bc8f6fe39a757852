"""Trains LeNet on MNIST with every strategy of several workers: accuracy, and bytes that a worker sends.

The ranks run on this machine, with one thread each; if there are more ranks than cores, times mean nothing. Bytes are
compared with theory, the gradients or weights that the strategy sends; the bytes sent also include losses and padding.
MNIST is in --data, or where NETSPEC_DATA says.

python -m benchmarks.bench_strategies [--epochs 4] [--workers 4] [--only one_bit,top_k] [--quick] [--json]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.bench_scaling import answer
from benchmarks.results import Results

SPEC = ROOT / "model_zoo" / "lenet_mnist" / "train.yaml"
STRATEGIES: dict[str, dict[str, Any]] = {
    "all_reduce": {},
    "all_reduce, bfloat16": {"strategy": "all_reduce", "reduce_in": "bfloat16"},
    "all_reduce, float16": {"strategy": "all_reduce", "reduce_in": "float16"},
    "one_bit": {"strategy": "one_bit"},
    "top_k": {"strategy": "top_k"},
    "sufficient_factors": {"strategy": "sufficient_factors"},
    "sharded_optimizer": {"strategy": "sharded_optimizer"},
    "model": {"strategy": "model"},
    "local_sgd": {"strategy": "local_sgd"},
    "elastic_averaging": {"strategy": "elastic_averaging"},
    "hogwild": {"strategy": "hogwild"},
    "parameter_server": {"strategy": "parameter_server"},
    "parameter_server backup": {"strategy": "parameter_server", "backup_workers": 1},
    "parameter_server asynchronous": {"strategy": "parameter_server", "mode": "asynchronous"},
    "parameter_server stale": {"strategy": "parameter_server", "mode": "stale_synchronous"},
    "pipeline": {"strategy": "pipeline"},
}
"""Value of `parallel` for each row of the table."""

RATE = 0.02
"""Learning rate of all strategies. The model's own, 0.05, is too high for `one_bit`, which would diverge at first."""


def trained(way: dict[str, Any], workers: int, epochs: int, data: str | None, run: Path) -> dict[str, Any]:
    """Return the last events in the log of a training."""
    fields = {"strategy": "all_reduce", **way}
    words = [
        sys.executable, "-m", "netspec", "train", str(SPEC), "--workers", str(workers), "--run-dir", str(run), "--json",
        "--device", "cpu",
        f"parallel={json.dumps(fields)}", f"train.max_epochs={epochs}", "train.checkpoint_every=0",
        f"solver.learning_rate.initial={RATE}",
    ]  # fmt: skip
    words += [f"data.{split}.path={data}" for split in ("train", "test") if data]
    events = [json.loads(line) for line in answer(words, run.parent).splitlines()]
    last_event = next(event for event in events if event["event"] == "done")
    return {
        "accuracy": last_event["test"]["metrics"]["accuracy"],
        "loss": last_event["test"]["loss"],
        "seconds": last_event["seconds"],
        "steps": last_event["steps"],
        **last_event["bytes_per_step"],
    }


def main() -> int:
    """Train with each strategy; the exit status is 1 if anything failed."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--epochs", type=int, default=4, help="train for this many passes over the 60,000 images [4]")
    parser.add_argument("--workers", type=int, default=4, help="use this many ranks on this machine [4]")
    parser.add_argument("--only", help=f"train with these, separated by commas: {', '.join(STRATEGIES)} [all]")
    parser.add_argument("--data", help="read MNIST's files from this folder")
    options = report.parsed(parser)
    results = Results("strategies", options, "mpi4py", "mpich")
    names = {name.strip() for name in options.only.split(",")} if options.only else set(STRATEGIES)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, way) in enumerate(STRATEGIES.items()):
            if name not in names:
                continue
            epochs = 1 if options.quick else options.epochs
            try:
                result = trained(way, options.workers, epochs, options.data, Path(folder) / str(number))
            except BenchmarkError as error:
                results.fail(error, strategy=name)
            else:
                results.add({"strategy": name, "workers": options.workers, "epochs": epochs, **result})
                report.say(f"{name}: {result['accuracy']:.4f}")
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
