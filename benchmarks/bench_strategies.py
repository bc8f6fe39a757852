"""Every strategy of several workers trains LeNet on MNIST: accuracy, and bytes that a worker sends, beside theory.

The ranks are on this machine, with one thread each; where they are more than its cores, the time says nothing. Theory
is what the strategy sends of gradients or weights; in what was sent is too what goes beside, such as the losses, and
what fills gaps. MNIST is below --data, else where NETSPEC_DATA says.

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
"""What is put under `parallel`, by what a table calls it."""

RATE = 0.02
"""Of all alike. The model's own, 0.05, is too much for `one_bit`, whose error lets the first steps go too far."""


def trained(way: dict[str, Any], workers: int, epochs: int, data: str | None, run: Path) -> dict[str, Any]:
    """What the log of a training says in the end."""
    given = {"strategy": "all_reduce", **way}
    words = [
        sys.executable, "-m", "netspec", "train", str(SPEC), "--workers", str(workers), "--run-dir", str(run), "--json",
        "--device", "cpu",
        f"parallel={json.dumps(given)}", f"train.max_epochs={epochs}", "train.checkpoint_every=0",
        f"solver.learning_rate.initial={RATE}",
    ]  # fmt: skip
    words += [f"data.{split}.path={data}" for split in ("train", "test") if data]
    events = [json.loads(line) for line in answer(words, run.parent).splitlines()]
    done = next(one for one in events if one["event"] == "done")
    return {
        "accuracy": done["test"]["metrics"]["accuracy"],
        "loss": done["test"]["loss"],
        "seconds": done["seconds"],
        "steps": done["steps"],
        **done["bytes_per_step"],
    }


def main() -> int:
    """Train in each way; the exit status is 1 where anything failed."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the 60,000 images")
    parser.add_argument("--workers", type=int, default=4, help="ranks on this machine")
    parser.add_argument("--only", help=f"names between commas; of {', '.join(STRATEGIES)}")
    parser.add_argument("--data", help="the folder of MNIST's files")
    options = report.parsed(parser)
    results = Results("strategies", options, "mpi4py", "mpich")
    wanted = {name.strip() for name in options.only.split(",")} if options.only else set(STRATEGIES)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, way) in enumerate(STRATEGIES.items()):
            if name not in wanted:
                continue
            epochs = 1 if options.quick else options.epochs
            try:
                found = trained(way, options.workers, epochs, options.data, Path(folder) / str(number))
            except BenchmarkError as error:
                results.fail(error, strategy=name)
            else:
                results.add({"strategy": name, "workers": options.workers, "epochs": epochs, **found})
                report.say(f"{name}: {found['accuracy']:.4f}")
    return results.end()


if __name__ == "__main__":
    sys.exit(main())
