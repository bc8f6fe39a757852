"""What trains: the compiler of a spec's net and solver, as it is spread over workers, and the loader of its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from netspec.backends.device import open_device
from netspec.compile import Compiler, Cutting, Divide, Duty, Purpose
from netspec.compile.stages import Staged, cut_by_cost
from netspec.data.loader import Loader, open_loader
from netspec.errors import InputError, Problem
from netspec.graph.ops.communication import Sending
from netspec.graph.types import Precision
from netspec.parallel.encodings import by_host
from netspec.parallel.strategies.all_reduce import AllReduce
from netspec.parallel.strategies.model import Model
from netspec.parallel.strategies.pipeline import Pipeline
from netspec.parallel.strategies.sharded_optimizer import ShardedOptimizer
from netspec.parallel.strategies.sufficient_factors import SufficientFactors
from netspec.parallel.strategies.synchronous import Synchronous
from netspec.passes.data_parallel import DataParallel
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.train.arguments import device_of
from netspec.train.crew import Crew
from netspec.train.evaluation import ALONE, wanted_inputs
from netspec.train.inputs import ranges

ALL_AT_ONCE = 1 << 62
"""Bytes of a bucket that holds all gradients."""


def trainer(spec: TrainSpec, device: str, crew: Crew = ALONE) -> Compiler:
    """The compiler of a training's net and solver."""
    assert isinstance(spec.solver, SolverSpec)
    loop, how = spec.train, spec.compile
    precision, strategy = Precision(loop.precision), crew.strategy
    why = None if crew.alone or strategy.host_only is None else f"{strategy.strategy}: {strategy.host_only}"
    opened = open_device(
        device_of(device), how.autotune, how.rounding, deterministic=how.deterministic, host_only=why
    )  # fmt: skip
    if opened.sums_itself and not crew.alone and strategy.host_only is not None:
        raise InputError(
            Problem(
                f"the workers of {strategy.strategy} do not compute on GPUs", strategy.where("strategy"),
                "parallel.strategy", expected="another strategy, or `--device cpu`", notes=(strategy.host_only,),
            )
        )  # fmt: skip
    summing = strategy if isinstance(strategy, Synchronous) else AllReduce()  # which the others make no use of
    factors = cutting = None
    samples = spec.data.train.batch_size
    if crew.size > 1 and isinstance(strategy, SufficientFactors):
        most = -(-samples // crew.size)
        factors = partial(strategy.chooses, samples=most * loop.accumulate, workers=crew.size), most
    if crew.size > 1 and isinstance(strategy, Model):
        choose = partial(strategy.cuts, samples=samples, workers=crew.size)
        cutting = Cutting(crew.workers.rank, crew.size, samples, choose)
    spread = crew.sums and crew.shards is None and strategy.splits_batches
    compiler = Compiler(
        spec.net, solver=spec.solver, dtype=precision, device=opened, seed=loop.seed, loop=loop,
        workers=crew.size if spread else 1,
        sending=partial(_by_host, summing.sending) if crew.by_host else summing.sending,
        earlier=[partial(summing.sending, stage=stage) for stage in range(len(summing.stages) - 1)],
        buckets=DataParallel(summing.first_bucket, summing.bucket), in_parts=crew.shards is not None,
        centers=crew.size > 1 and strategy.has_center, factors=factors, cutting=cutting,
        shared=strategy.shared if crew.size > 1 else (),
        staged=staged(spec, strategy, crew.workers.rank, crew.size) if isinstance(strategy, Pipeline) else None,
        **_divided(crew),
    )  # fmt: skip
    if factors is not None and isinstance(strategy, SufficientFactors):
        strategy.check_layers(compiler.factored_layers)
    return compiler


def _by_host(sending: Callable[[tuple[int, ...]], Sending], shape: tuple[int, ...]) -> Sending:
    """How a gradient is sent that is summed up host by host."""
    how = sending(shape)
    return replace(how, encoding=by_host(how.encoding))


def _divided(crew: Crew) -> dict[str, Any]:
    """Who has which pieces of the parameters: workers who each move some, or servers, each with one stretch."""
    ranks = crew.everyone.size
    if crew.size == ranks:
        strategy = crew.strategy
        if ranks == 1 or not isinstance(strategy, ShardedOptimizer):
            return {}
        return {"divide": Divide(crew.workers.rank, [1.0] * ranks, strategy.first_bucket, strategy.bucket)}
    shares = [float(rank >= crew.size) for rank in range(ranks)]
    duty = Duty.UPDATE if crew.serves else Duty.GRADIENTS
    return {"divide": Divide(crew.everyone.rank, shares, ALL_AT_ONCE, ALL_AT_ONCE), "duty": duty}


def staged(spec: TrainSpec, strategy: Pipeline, stage: int, stages: int) -> Staged:
    """How a step is spread over so many stages, each of which is computed by one worker."""
    begins: tuple[str, ...] = ()
    if stages > 1 and strategy.cuts == "auto":
        samples = -(-spec.data.train.batch_size // strategy.micro_batches)
        begins = cut_by_cost(spec.net, stages, samples, Precision(spec.train.precision))
    elif stages > 1:
        begins = tuple(strategy.cuts)
    return Staged(stages, stage, strategy.micro_batches, strategy.schedule == "1f1b", begins)


def open_training_loader(spec: TrainSpec, compiler: Compiler, crew: Crew = ALONE) -> Loader:
    """The loader of the training data, with what the net's programs read; these look up what comes as bytes."""
    of_batch = compiler.of_batch if compiler.staged is None else Purpose.FORWARD  # a stage may read nothing by itself
    wanted = wanted_inputs(compiler, [of_batch, *([Purpose.ADAPT] if compiler.adapts else [])])
    loader = open_loader(
        spec.data.train, seed=spec.train.seed, wanted=wanted, ranges=ranges(compiler), known=spec.net.inputs,
        share=crew.training_share, late=compiler.device.prefers_bytes and compiler.staged is None,
    )  # fmt: skip
    compiler.postpone(loader.postponed)
    return loader
