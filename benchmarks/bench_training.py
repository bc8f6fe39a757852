"""A training step of netspec against PyTorch's, in float32.

    python -m benchmarks.bench_training [--quick] [--nets lenet,resnet20] [--peers eager,compile] [--compare] [--json]

A step is forward, backward and an update by SGD with momentum 0.9, on a batch that is there already; netspec's step
copies it in. Before a net is timed, the losses of three steps and the gradients of the first are compared with those of
PyTorch in float64; netspec must be about as near to them as PyTorch's own float32 is. Peers: eager, channels_last,
torch.compile, and torch.compile of channels_last. The ratio is the fastest peer's median divided by netspec's. Memory
is the most that was resident at once, less what was after one step of a tiny net of the same library.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import report
from benchmarks.alternate import BenchmarkError, Worker, Workers, alternate
from benchmarks.catalogue import Net

if TYPE_CHECKING:
    from numpy.typing import NDArray

PEERS = ("eager", "channels_last", "compile", "compile_channels_last")
COMPARED_STEPS = 3
LOSS_TOLERANCE = 1e-5
CHANGE_TOLERANCE = 1e-2
"""A loss may be off by the first, relative to itself (float32 sums are off by 1e-6 or so), and by the second relative
to its change since the first step, as gradients may be. An update without its momentum is off by a third."""
GRADIENT_TOLERANCE = 1e-5
TIMES_PEERS = 3.0
"""A gradient may be off by the first (|ours - exact| / |exact| in L2, float32 sums over some thousand terms), or by the
second times the error of PyTorch's float32, eager or channels_last. Where rounding turns the sign before a ReLU or the
winner of a max pooling a whole path changes sides: PyTorch's error is up to 2e-2 then, which is no matter of digits."""


def main() -> None:
    """Measure the chosen nets, one after another."""
    options = _options()
    report.need("torch")
    nets = report.chosen_nets(options)
    if options.compare:
        for net in nets:
            print(agreed(net, compare(net, options.threads)), flush=True)
        return
    about = report.machine("torch", "numpy", "numba", "onednn-cpu-gomp")
    found = [measure(net, options) for net in nets]
    if options.json:
        report.print_json({"machine": about, "threads": options.threads, "training": found})
        return
    print(report.heading(about, options))
    peers = options.peers.split(",")
    columns = ["net (batch)", "netspec ms", *(f"{peer} ms" for peer in peers), "netspec MB", "peer MB", "compile s"]
    report.print_table(
        [*columns, "GFLOP/s", "memory ratio", "by fastest", "ratio"], [_row(one, peers) for one in found]
    )
    for what in ("memory_ratio", "ratio_of_fastest", "ratio"):
        mean = report.geometric_mean(one[what] for one in found)
        print(f"\ngeometric mean of {what.replace('_', ' ')}: {mean:.2f}", end="")
    print(f"; least {min(one['ratio'] for one in found):.2f}")


def _options() -> argparse.Namespace:
    parser = report.parser(__doc__ or "")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"names between commas; of {', '.join(PEERS)}")
    parser.add_argument("--compare", action="store_true", help="only compare losses and gradients; nothing is timed")
    parser.add_argument(
        "--in-one-process", action="store_true", help="all subjects in this process, to see what it does"
    )
    options = report.parsed(parser)
    unknown = set(options.peers.split(",")) - set(PEERS)
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    return options


def _row(one: dict[str, Any], peers: list[str]) -> list[str]:
    return [
        f"{one['net']} ({one['batch_size']})",
        report.milliseconds(one["seconds"]["netspec"]),
        *(report.milliseconds(one["seconds"][peer]) for peer in peers),
        report.megabytes(one["memory"]["netspec"]),
        report.megabytes(one["memory"][one["leanest"]]),
        f"{one['compile_seconds']['netspec']:.2f}",
        f"{one['flops'] / one['seconds']['netspec'] / 1e9:.0f}",
        f"{one['memory_ratio']:.2f}",
        f"{one['ratio_of_fastest']:.2f}",
        f"{one['ratio']:.2f}",
    ]


def measure(net: Net, options: argparse.Namespace) -> dict[str, Any]:
    """Compare, then time one net."""
    agreement = compare(net, options.threads)
    report.say(f"{agreed(net, agreement)}; now timing")
    timed = {"kind": "training", "net": net.name, "compared": False}
    peers = options.peers.split(",")
    with Workers() as workers:
        for name in ("netspec", *peers):
            workers.start(options.threads, local=options.in_one_process, subject=name, **timed)
        quick = options.quick
        times = alternate(workers.by_name, rounds=3 if quick else 7, seconds=0.3 if quick else 1.0, least=3)
        facts = {name: worker.facts for name, worker in workers.by_name.items()}
        memory = {name: worker.ask("memory") for name, worker in workers.by_name.items()}
    used = {name: one["peak"] - one["baseline"] for name, one in memory.items()}
    medians = {name: one.median for name, one in times.items()}
    fastest = {name: one.fastest for name, one in times.items()}
    leanest = min(peers, key=used.__getitem__)
    return {
        "net": net.name,
        "batch_size": net.batch_size,
        "agreement": agreement,
        "seconds": medians,
        "fastest_seconds": fastest,
        "steps": {name: len(one.seconds) for name, one in times.items()},
        "compile_seconds": {name: one["compile_seconds"] for name, one in facts.items()},
        "flops": facts["netspec"]["flops"],
        "memory": used,
        "peak_memory": {name: one["peak"] for name, one in memory.items()},
        "leanest": leanest,
        "memory_ratio": used["netspec"] / used[leanest],
        "ratio_of_fastest": min(fastest[peer] for peer in peers) / fastest["netspec"],
        "ratio": min(medians[peer] for peer in peers) / medians["netspec"],
    }


def compare(net: Net, threads: int) -> dict[str, float]:
    """The largest relative differences from PyTorch's float64, dropout off: of losses, gradients, PyTorch's gradients.

    Raises `BenchmarkError` where they are too large: what is wrong is not timed.
    """
    losses, gradients = {}, {}
    with tempfile.TemporaryDirectory() as made:
        for name in ("float64", "netspec", "eager", "channels_last"):
            folder = Path(made) / name
            folder.mkdir()
            worker = Worker(threads, kind="training", subject=name, net=net.name, compared=True)
            losses[name] = worker.ask("compare", folder=str(folder), steps=COMPARED_STEPS)["losses"]
            worker.close()
            gradients[name] = largest_difference(net, folder, Path(made) / "float64")
    exact = losses["float64"]
    off = [abs(ours - theirs) for ours, theirs in zip(losses["netspec"], exact, strict=True)]
    allowed = [LOSS_TOLERANCE * abs(one) + CHANGE_TOLERANCE * abs(one - exact[0]) for one in exact]
    if not all(one <= most for one, most in zip(off, allowed, strict=True)):
        raise BenchmarkError(f"{net.name}: the losses are {losses['netspec']}, PyTorch's {exact}")
    loss = max(one / abs(whole) for one, whole in zip(off, exact, strict=True))
    ours, theirs = gradients["netspec"], max(gradients["eager"], gradients["channels_last"])
    if not ours <= max(GRADIENT_TOLERANCE, TIMES_PEERS * theirs):
        raise BenchmarkError(f"{net.name}: a gradient is off by {ours:.1e} of its length, PyTorch's by {theirs:.1e}")
    return {"loss": loss, "gradient": ours, "peers_gradient": theirs}


def agreed(net: Net, found: dict[str, float]) -> str:
    """The differences in words."""
    return (
        f"{net.name}: losses differ from float64's by {found['loss']:.1e} at most, gradients by "
        f"{found['gradient']:.1e} (PyTorch's: {found['peers_gradient']:.1e})"
    )


def largest_difference(net: Net, ours: Path, theirs: Path) -> float:
    """Over the arrays in two folders, the largest |ours - theirs| / |theirs|. Both must hold the same ones."""
    import numpy as np

    names = sorted(path.name for path in theirs.iterdir())
    if names != sorted(path.name for path in ours.iterdir()):
        raise BenchmarkError(f"{net.name}: netspec and PyTorch have different numbers of parameters")
    worst = 0.0
    for name in names:
        a: NDArray[Any] = np.load(ours / name)
        b: NDArray[Any] = np.load(theirs / name)
        if a.shape != b.shape:
            raise BenchmarkError(f"{net.name}: parameter {name} is {a.shape}, PyTorch's {b.shape}")
        worst = max(worst, float(np.linalg.norm(a - b) / np.linalg.norm(b)))
    return worst


if __name__ == "__main__":
    sys.exit(report.run(main))
