"""Compares a training step with PyTorch's, JAX's and scikit-learn's in float32, or PyTorch's autocast to bfloat16.

python -m benchmarks.bench_training [--quick] [--nets lenet,resnet20] [--peers eager,compile] [--compare] [--json]
[--precision bfloat16]

A step is forward, backward and an update by SGD with momentum 0.9, on a batch in memory; netspec's step copies it.
Before a net is timed, the losses of three steps and the gradients of the first are compared with those of PyTorch in
float64; netspec must be about as close to them as PyTorch in the same precision, and so must JAX and scikit-learn,
which are measured in float32 only. Peers: PyTorch eager, channels_last, torch.compile, torch.compile of channels_last;
`jax` has some of the nets, each step compiled as a whole; `sklearn` has the MLP. The ratio is the fastest median of
PyTorch's divided by netspec's. Memory is the peak resident memory, less that after one step of a tiny net of the same
library.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import report
from benchmarks.alternate import BenchmarkError, Worker, Workers, alternate
from benchmarks.catalogue import ALSO, Net
from benchmarks.render import TORCH
from benchmarks.results import Results

if TYPE_CHECKING:
    from numpy.typing import NDArray

PEERS = (*TORCH, *ALSO)
QUICK_PEERS = ("eager", "channels_last", "compile_channels_last", *ALSO)
PATIENCE = 300.0
"""Seconds that a peer may take to start: torch.compile of a large net takes minutes."""
COMPARED_STEPS = 3
LOSS_TOLERANCE = {"float32": 1e-5, "bfloat16": 2**-7}
CHANGE_TOLERANCE = {"float32": 1e-2, "bfloat16": 5e-2}
"""Tolerances of a loss: the first relative to the loss (float32 sums have errors of about 1e-6, values of 8 bits 2⁻⁹),
the second relative to its change since the first step, as for gradients. An update without momentum is off by a
third."""
GRADIENT_TOLERANCE = 1e-5
NOTHING = 1e-10
"""Arrays shorter than this share of the longest gradient, in float64, count as 0."""
TIMES_PEERS = 6.0
"""Convolutions with fewer multiplications have up to five times the error of direct sums (decision 22). A gradient may
be off by the first (|ours - exact| / |exact| in L2, float32 sums over thousands of terms), or by the second times
the error of PyTorch's float32, eager or channels_last. If rounding flips the sign before a ReLU or the maximum of a
pooling window, gradients take another path: PyTorch's error is then up to 2e-2, which is not a matter of precision."""


def main() -> int:
    """Measure the selected nets, one after another."""
    options = _options()
    report.require("torch", *(name for name in ALSO if name in options.peers))
    nets = report.chosen_nets(options)
    results = Results("training", options, "torch", "jax", "scikit-learn", "numpy", "numba", "onednn-cpu-gomp")
    for net in nets:
        try:
            if options.compare:
                print(agreed(net, compare(net, options)[0]), flush=True)
            else:
                results.add(measure(net, options))
        except BenchmarkError as error:
            results.fail(error, net=net.name)
    if options.compare:
        return 1 if results.data["failed"] else 0
    return results.end()


def _options() -> argparse.Namespace:
    parser = report.parser(__doc__ or "")
    parser.add_argument("--peers", help=f"compare with these, separated by commas: {', '.join(PEERS)} [all]")
    parser.add_argument(
        "--precision", default="float32", choices=list(LOSS_TOLERANCE), help="compute in this precision [float32]"
    )
    parser.add_argument("--compare", action="store_true", help="only compare losses and gradients, without timing")
    parser.add_argument("--no-compare", action="store_true", help="time without comparing first")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="wait this many seconds for a peer to start")
    parser.add_argument(
        "--in-one-process",
        action="store_true",
        help="run all subjects in this process, to see how they disturb each other",
    )
    options = report.parsed(parser)
    chosen = options.peers.split(",") if options.peers else QUICK_PEERS if options.quick else PEERS
    unknown = set(chosen) - set(PEERS)
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    options.peers = [peer for peer in chosen if options.precision == "float32" or peer in TORCH]
    return options


def _with(net: Net, peers: Sequence[str]) -> list[str]:
    """Return the peers that have the net."""
    return [peer for peer in peers if net.name in ALSO.get(peer, (net.name,))]


def measure(net: Net, options: argparse.Namespace) -> dict[str, Any]:
    """Compare, then time one net. A peer that fails is left out. Raises `BenchmarkError` if netspec fails."""
    agreement: dict[str, float] | None = None
    failed: dict[str, str] = {}
    if not options.no_compare:
        agreement, failed = compare(net, options)
        report.say(agreed(net, agreement))
    report.say(f"{net.name}: timing")
    timed: dict[str, Any] = {"kind": "training", "net": net.name, "compared": False, "precision": options.precision}
    with Workers() as workers:
        workers.start(options.threads, local=options.in_one_process, subject="netspec", **timed)
        for name in _with(net, options.peers):
            if name not in failed:
                local, patience = options.in_one_process, options.patience
                workers.try_start(options.threads, local=local, limit=patience, subject=name, **timed)
        quick = options.quick
        times = alternate(workers, rounds=3 if quick else 7, seconds=0.3 if quick else 1.0, least=3)
        failed |= workers.failed
        if "netspec" in failed:
            raise BenchmarkError(failed["netspec"])
        facts = {name: worker.facts for name, worker in workers.by_name.items()}
        memory = {name: worker.ask("memory") for name, worker in workers.by_name.items()}
        roofline = workers.by_name["netspec"].ask("roofline")
    used = {name: usage["peak"] - usage["baseline"] for name, usage in memory.items()}
    medians = {name: time.median for name, time in times.items()}
    fastest = {name: time.fastest for name, time in times.items()}
    torch = [name for name in TORCH if name in medians]
    leanest = min(torch, key=used.__getitem__, default=None)
    rate = facts["netspec"]["flops"] / medians["netspec"]
    return {
        "net": net.name,
        "batch_size": net.batch_size,
        "precision": options.precision,
        "agreement": agreement,
        "seconds": medians,
        "fastest_seconds": fastest,
        "steps": {name: len(time.seconds) for name, time in times.items()},
        "compile_seconds": {name: fact["compile_seconds"] for name, fact in facts.items()},
        "flops": facts["netspec"]["flops"],
        "roofline": roofline,
        "share_of_peak": rate / roofline["flops_per_second"],
        "memory": used,
        "peak_memory": {name: usage["peak"] for name, usage in memory.items()},
        "leanest": leanest,
        "memory_ratio": used["netspec"] / used[leanest] if leanest else None,
        "ratio_of_fastest": min(fastest[peer] for peer in torch) / fastest["netspec"] if torch else None,
        "ratio": min(medians[peer] for peer in torch) / medians["netspec"] if torch else None,
        "failed": failed,
    }


def compare(net: Net, options: argparse.Namespace) -> tuple[dict[str, float], dict[str, str]]:
    """Return the largest relative differences from PyTorch's float64, without dropout, of losses and gradients.

    Also returns the failures of other peers that differ. Raises `BenchmarkError` if netspec differs: wrong results are
    not timed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        answers = _Answers(net, options, Path(temporary))
        exact = answers.losses("float64")
        ours = answers.gradient("netspec")
        theirs = max(answers.gradient(name) for name in ("eager", "channels_last"))
        loss = _loss_difference(net, "netspec", answers.losses("netspec"), exact, options.precision)
        _check_gradient(net, "netspec", ours, theirs)
        failed = {}
        for name in _with(net, [peer for peer in options.peers if peer in ALSO]):
            try:
                _loss_difference(net, name, answers.losses(name), exact, options.precision)
                _check_gradient(net, name, answers.gradient(name), theirs)
            except BenchmarkError as error:
                failed[name] = str(error)
    return {"loss": loss, "gradient": ours, "peers_gradient": theirs}, failed


class _Answers:
    """The first steps of subjects, each computed once."""

    def __init__(self, net: Net, options: argparse.Namespace, folder: Path) -> None:
        self._net, self._options, self._folder = net, options, folder
        self._losses: dict[str, list[float]] = {}

    def losses(self, name: str) -> list[float]:
        """Return the losses of the first steps."""
        if name not in self._losses:
            folder = self._folder / name
            folder.mkdir()
            request = {
                "kind": "training",
                "net": self._net.name,
                "compared": True,
                "precision": self._options.precision,
            }
            worker = Worker(self._options.threads, subject=name, **request)
            try:
                self._losses[name] = worker.ask("compare", folder=str(folder), steps=COMPARED_STEPS)["losses"]
            finally:
                worker.close()
        return self._losses[name]

    def gradient(self, name: str) -> float:
        """Return the largest relative difference of a gradient of the first step from that of float64."""
        self.losses("float64"), self.losses(name)
        return largest_difference(self._net, self._folder / name, self._folder / "float64")


def _loss_difference(net: Net, name: str, losses: list[float], exact: list[float], precision: str) -> float:
    """Return the largest relative difference. Raises `BenchmarkError` if it is too large."""
    off = [abs(ours - theirs) for ours, theirs in zip(losses, exact, strict=True)]
    tolerance, change = LOSS_TOLERANCE[precision], CHANGE_TOLERANCE[precision]
    allowed = [tolerance * abs(loss) + change * abs(loss - exact[0]) for loss in exact]
    if not all(error <= most for error, most in zip(off, allowed, strict=True)):
        raise BenchmarkError(f"{net.name}: the losses of {name} are {losses}, PyTorch's {exact}")
    return max(error / abs(loss) for error, loss in zip(off, exact, strict=True))


def _check_gradient(net: Net, name: str, off: float, theirs: float) -> None:
    """Raise `BenchmarkError` if a gradient has too large an error."""
    if not off <= max(GRADIENT_TOLERANCE, TIMES_PEERS * theirs):
        raise BenchmarkError(
            f"{net.name}: a gradient of {name} is off by {off:.1e} of its length, PyTorch's by {theirs:.1e}"
        )


def agreed(net: Net, differences: dict[str, float]) -> str:
    """Format the differences."""
    return (
        f"{net.name}: losses differ from float64's by {differences['loss']:.1e} at most, gradients by "
        f"{differences['gradient']:.1e} (PyTorch's: {differences['peers_gradient']:.1e})"
    )


def largest_difference(net: Net, ours: Path, theirs: Path) -> float:
    """Return the largest |ours - theirs| / |theirs| over the arrays in two folders, which must hold the same arrays.

    An array that is 0 except for rounding, such as the gradient of the bias of keys, to which a softmax is invariant,
    is compared with the longest array instead.
    """
    import numpy as np

    names = sorted(path.name for path in theirs.iterdir())
    if names != sorted(path.name for path in ours.iterdir()):
        raise BenchmarkError(f"{net.name}: {ours.name} and PyTorch have different numbers of parameters")
    worst = 0.0
    longest = max(float(np.linalg.norm(np.load(theirs / name))) for name in names)
    for name in names:
        a: NDArray[Any] = np.load(ours / name)
        b: NDArray[Any] = np.load(theirs / name)
        if a.shape != b.shape:
            raise BenchmarkError(f"{net.name}: parameter {name} is {a.shape}, PyTorch's {b.shape}")
        length = float(np.linalg.norm(b))
        worst = max(worst, float(np.linalg.norm(a - b)) / (length if length > NOTHING * longest else longest))
    return worst


if __name__ == "__main__":
    sys.exit(report.run(main))
