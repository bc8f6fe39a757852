"""Train on a few samples until the net has memorized them: a net that can't do that contains a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from netspec.compile import Compiler, ProgramKind
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import InputError, counted, listing
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.train import TrainSpec
from netspec.tools.bounds import require_at_least
from netspec.tools.plain_data import PlainData
from netspec.tools.short_training import load_short_training, open_training
from netspec.training.diagnostics.overfitting import OverfitHistory, limit_to_first, train_until_learned

DEFAULT_STEPS = 500
"""Default number of steps after which the net counts as unable to learn the samples."""
DIVERGED = 1.5
"""Fraction of the first loss above which the training counts as diverged."""
STALLED = 0.9
"""Fraction of the first loss above which the loss counts as not falling."""


@dataclass(frozen=True)
class Overfit(PlainData):
    """The losses of a training on a few samples."""

    name: str
    samples: int
    losses: tuple[float, ...]
    """Mean training loss of each pass over the samples, each step's before its update; no penalties on weights."""
    accuracy: float | None
    """Fraction of the samples that are classified correctly, if the net has such a metric and the device logs it."""
    learned: bool
    causes: tuple[str, ...] = ()
    """Likely reasons why the samples are not learned."""


def overfit(
    source: Source,
    count: int,
    *,
    overrides: Overrides = (),
    steps: int = DEFAULT_STEPS,
    weights: str | Path | None = None,
    samples: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> Overfit:
    """Train on the first `count` samples until they are learned, for `steps` steps at most. Writes nothing.

    The samples are those of the training data in its order, without random transforms. The solver and its schedule are
    those of the file, and so are dropout and penalties on weights. The samples are learned if the mean loss of a pass
    over them is 5 % of that of the first pass, or if it is 50 % and all are classified correctly.

    Raises `InputError` if the spec, the data or an argument is wrong.

        >>> netspec.overfit("train.yaml", 16).learned
    """
    require_at_least(1, {"the number of samples": count, "steps": steps})
    spec, _ = load_short_training(source, overrides, samples)
    few = limit_to_first(spec, count)
    with open_training(few, device, weights) as (compiler, loader):
        sample_count, min_steps = loader.samples, 2 * loader.steps_per_epoch
        if steps < min_steps:
            raise InputError(
                f"{counted(steps, 'step')} are fewer than two passes over {counted(sample_count, 'sample')}",
                location=few.data.train.where("batch_size"),
                expected=f"at least {min_steps:,} steps, fewer samples, or a larger batch size",
                got=f"a batch size of {loader.batch_size}",
            )  # fmt: skip
        history = train_until_learned(few, compiler, loader, steps)
        learned = history.is_learned()
        causes = () if learned else tuple(_causes(few, compiler, loader, history))
    return Overfit(spec.name or spec.net.name, sample_count, tuple(history.losses), history.accuracy, learned, causes)


def _causes(spec: TrainSpec, compiler: Compiler, loader: Loader, history: OverfitHistory) -> Iterator[str]:
    """Yield likely reasons why the samples are not learned."""
    losses = history.losses
    first, last = losses[0], fmean(losses[-(len(losses) // 4 + 1) :])  # dropout makes single losses noisy
    contradictions = _contradictions(compiler, loader)
    if contradictions:
        yield f"{counted(contradictions, 'sample')} with the same inputs as another one, but other targets"
    if not isfinite(last):
        yield "the loss or a gradient is not finite: `netspec train` names the first operation"
    if not isfinite(last) and not history.steps:
        yield "it is not finite before the first update: an input, an initial weight or an operation, not the solver"
    elif not isfinite(last) or last > DIVERGED * first:
        yield "the learning rate is too high: `netspec train SPEC --find-lr` suggests one"
    elif last > STALLED * first:
        yield "the loss does not fall: the learning rate is too low, layers are frozen, or the net lacks what it needs"
        yield "an activation or a loss does not fit: probabilities as logits, a ReLU before the loss, wrong `from`"
    else:
        yield "the loss falls slowly: raise the learning rate (`--find-lr` suggests one), or the size of the net"
    if noisy := [layer.name or "" for layer in spec.net.layers if "Dropout" in str(getattr(layer, "type", ""))]:
        yield f"dropout hinders memorizing: set `rate` to 0 for this test in {listing(noisy)}"


def _contradictions(compiler: Compiler, loader: Loader) -> int:
    """Count samples with the same inputs as an earlier sample but different targets."""
    inputs = compiler.graph(ProgramKind.PREDICT, 1).inputs()
    seen: dict[bytes, bytes] = {}
    contradictions = 0
    for batch in loader.one_pass():
        for row in range(len(batch)):
            sample, target = _key(batch, row, inputs, read=True), _key(batch, row, inputs, read=False)
            contradictions += seen.setdefault(sample, target) != target
    return contradictions


def _key(batch: Batch, row: int, inputs: Mapping[str, Any], *, read: bool) -> bytes:
    """Return the bytes of the arrays of a sample that the net reads, or (`read=False`) of all others."""
    return b"".join(array[row].tobytes() for name, array in batch.inputs.items() if (name in inputs) == read)
