"""Checks whether training can run on a number of workers."""

from __future__ import annotations

from collections.abc import Iterator

from netspec.distributed.strategies.all_reduce import AllReduce
from netspec.distributed.strategies.base import Strategy
from netspec.errors import InputError, Problem
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.lbfgs import LBFGS


def check_workers(spec: TrainSpec, workers: int, *, one_host: bool = True) -> None:
    """Raise `InputError` if training can't run on `workers` workers, including servers.

    `one_host` says whether all of them are on one host.
    """
    problems: list[Problem] = []
    strategy = spec.parallel
    if isinstance(strategy, Strategy):
        problems += strategy.rank_problems(spec, workers)
        workers -= 0 if problems else strategy.servers_among(workers)
    problems += _batch_problems(spec, workers)
    if isinstance(strategy, Strategy) and strategy.one_host and not one_host:
        problems.append(
            Problem(
                f"the workers of {strategy.strategy} share memory, so they must be on one host", strategy.where(),
                "parallel", expected="all workers on one host, or a different strategy",
            )
        )  # fmt: skip
    if workers > 1:
        problems += _synchronization_problems(spec)
    if workers > 1 and isinstance(spec.solver, LBFGS):
        problems.append(
            Problem(
                "LBFGS trains on one worker", spec.solver.where(), "solver",
                expected="a different solver, or one worker",
                got=f"{workers} workers",
                hint="the number of loss evaluations varies between steps, so gradients cannot be summed in the graph",
            )
        )  # fmt: skip
    if problems:
        raise InputError(problems)


def _splits_batches(spec: TrainSpec) -> bool:
    return not isinstance(spec.parallel, Strategy) or spec.parallel.splits_batches


def _batch_problems(spec: TrainSpec, workers: int) -> Iterator[Problem]:
    """Yield a problem if a batch cannot be divided among the workers."""
    strategy = spec.parallel
    if _splits_batches(spec) and spec.data.train.batch_size < workers:
        yield Problem(
            "a batch has fewer samples than there are workers", spec.data.train.where("batch_size"),
            "data.train.batch_size", expected=f"{workers} or more: it is split over all workers",
            got=str(spec.data.train.batch_size),
        )  # fmt: skip
    elif isinstance(strategy, AllReduce) and strategy.deterministic and strategy.shards < workers:
        yield Problem(
            "there are more workers than `shards`", strategy.where("shards") or strategy.where("deterministic"),
            "parallel.shards", expected=f"{workers} or more", got=str(strategy.shards),
        )  # fmt: skip


def _synchronization_problems(spec: TrainSpec) -> Iterator[Problem]:
    """Yield a problem for each synchronized layer if several workers do not compute whole batches together."""
    strategy = spec.parallel
    if isinstance(strategy, AllReduce) and strategy.deterministic:
        reason, instead = "`deterministic` steps compute a batch in parts", "`deterministic: false`"
    elif strategy is None or (isinstance(strategy, Strategy) and strategy.sums_gradients and _splits_batches(spec)):
        return
    else:
        reason = "the workers do not compute a batch at the same time"
        instead = "a strategy that sums the gradients of every step"
    for layer in spec.net.layers:
        if getattr(layer, "synchronized", False):
            yield Problem(
                f"layer `{layer.name}` cannot be synchronized: {reason}", layer.where("synchronized"),
                f"layers.{layer.name}.synchronized", expected=f"`synchronized: false`, or {instead}",
            )  # fmt: skip
