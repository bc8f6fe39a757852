"""`netspec profile`: a trace of training steps and an evaluation, and where the steps spend their time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE
from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Json, Overrides, Threads, Training, writable
from netspec.cli.output import count, print_json, table
from netspec.cli.workers import should_start, start
from netspec.distributed import world
from netspec.errors import counted
from netspec.tools.bounds import require_at_least

if TYPE_CHECKING:
    from netspec.tools.measuring.profiling import Profile

ROWS = 10
"""Number of operations in the table."""
LEAST = 0.0005
"""Share of a step from which on a part is listed."""
SLOW_DATA = 0.1
"""Share of a step spent on getting its batches from which on a hint is printed."""

app = CommandApp()


@app.add_command(
    "netspec profile train.yaml",
    "netspec profile runs/lenet_mnist --steps 3 --output lenet.json.gz",
    "netspec profile train.yaml --workers 2",
)
def profile(
    spec: Training,
    overrides: Overrides = None,
    *,
    steps: Annotated[int, typer.Option(metavar="N", help="Record N steps.")] = 10,
    warmup: Annotated[int, typer.Option(metavar="N", help="Train N steps before recording.")] = 5,
    output: Annotated[Path, typer.Option(metavar="FILE", help="Write this .json or .json.gz file.")] = Path(
        "trace.json"
    ),
    device: Device = "auto",
    threads: Threads = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Profile N processes [default: 1].")
    ] = None,
    as_json: Json = False,
) -> int:
    """Trace training steps: operations, data, communication.

    Trains from the initial weights, --warmup and then --steps steps, then evaluates on at most --steps batches. Writes
    a trace for https://ui.perfetto.dev and chrome://tracing: each operation with its layer, kernel, shapes, FLOP and
    bytes, the reads and transforms of each thread, and the messages of each worker. Prints where the steps spend their
    time. Runs no callbacks, and writes no checkpoints. On a GPU, kernels are started one by one, not as a CUDA graph.
    """
    require_at_least(1, {"--steps": steps})
    require_at_least(0, {"--warmup": warmup})
    writable(output, "--output")
    if workers is not None and should_start(workers):
        words = [spec, *(overrides or []), "--steps", str(steps), "--warmup", str(warmup), "--output", str(output)]
        return start(workers, ["profile", *words, "--device", device, *["--json"] * as_json])
    from netspec.tools.measuring.profiling import profile as profile_spec

    result = profile_spec(spec, overrides=overrides or (), output=output, steps=steps, warmup=warmup, device=device)
    if world().is_first:
        if as_json:
            print_json(result.as_json())
        else:
            _show(result, output)
    return DONE


def _show(profile: Profile, output: Path) -> None:
    from netspec.tools.measuring.profiling import PARTS

    several = f" on {count(profile.workers)} workers (times are those of the first)" if profile.workers > 1 else ""
    print(
        f"{profile.name}: {counted(profile.steps, 'training step')} of {counted(profile.batch_size, 'sample')}"
        f"{several}, {profile.precision}, on {profile.device}\n"
    )
    step = profile.step_seconds
    titles = {**PARTS, "other": "between operations"}
    rows = [
        [titles[part], _ms(seconds), _share(seconds, step)]
        for part, seconds in profile.parts.items()
        if seconds >= LEAST * step
    ]
    table(["part of a step", "ms", "share"], [*rows, ["total", _ms(step), _share(step, step)]], right=(1, 2))
    print()
    shown = profile.operations[:ROWS]
    table(
        ["operation", "layer", "phase", "kernel", "calls", "ms per step", "share"],
        [
            [total.op, total.layer or "-", total.phase, total.kernel or "-", count(total.calls), _ms(total.seconds),
             _share(total.seconds, step)]
            for total in shown
        ],
        right=(4, 5, 6),
    )  # fmt: skip
    if (more := len(profile.operations) - len(shown)) > 0:
        print(f"and {counted(more, 'other operation')}")
    _print_waits(profile)
    print(f"trace       {output}: {counted(len(profile.events), 'event')}; open it at https://ui.perfetto.dev")


def _print_waits(profile: Profile) -> None:
    """Print which threads load data, how long that takes, and for what the steps wait."""
    works = ", ".join(f"{name} {_ms(seconds)} ms" for name, seconds in profile.data_seconds.items()) or "none"
    where = f"ahead, in {counted(len(profile.data_threads), 'thread')}" if profile.loads_ahead else "between steps"
    print(f"\ndata        {works} per step, {where}")
    shares = [f"{100 * share:.1f} % for {what}" for what, share in profile.waits.items()]
    print(f"waiting     {', '.join(shares)}")
    if profile.evaluation_seconds is not None:
        print(f"evaluation  {_ms(profile.evaluation_seconds)} ms per batch of {profile.evaluated_data}")
    if profile.waits["batches"] >= SLOW_DATA and profile.loads_ahead:
        print("hint        loading is slower than the steps: smaller images, fewer transforms, or more cores")
    elif profile.waits["batches"] >= SLOW_DATA:
        print("hint        batches are not prepared ahead: `prefetch` is 0, or a batch takes less than 1 ms")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.3f}"


def _share(seconds: float, total: float) -> str:
    return f"{100 * seconds / total:.1f} %"
