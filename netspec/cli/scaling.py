"""What `netspec scale` predicts from: a net's step, measured here or given, layer by layer, as numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from netspec.backends.device import open_device
from netspec.cli.costs import LayerCost, layer_costs
from netspec.cli.specs import autotune_of, deterministic_of, net_of, precision_of, rounding_of
from netspec.cli.timing import Timing, time_net
from netspec.compile import Built, Compiler, Purpose
from netspec.compile.cutting import divisible
from netspec.errors import InputError
from netspec.parallel.costs.plans import Job
from netspec.parallel.costs.workload import Compute, Dense, Layer, Work
from netspec.parallel.strategies.all_reduce import AllReduce
from netspec.parallel.strategies.elastic_averaging import ElasticAveraging
from netspec.parallel.strategies.local_sgd import AVERAGED, LocalSGD
from netspec.parallel.strategies.model import Model
from netspec.parallel.strategies.one_bit import OneBit
from netspec.parallel.strategies.parameter_server import ParameterServer
from netspec.parallel.strategies.pipeline import Pipeline
from netspec.parallel.strategies.synchronous import Synchronous
from netspec.parallel.strategies.top_k import TopK
from netspec.schema.links import resolve_names
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.sgd import SGD

LARGEST = 256
"""Samples of the largest batch that is measured; times of larger ones are on the line through those measured."""
ADDED = 2**24
"""Bytes of the arrays that are added up to measure that."""


@dataclass(frozen=True)
class Measured:
    """Steps of some batch sizes."""

    compute: Compute
    adding: float
    """Seconds a byte that is added up."""
    how: str
    """Where the times come from, for whoever reads them."""


def training_of(spec: NetSpec | TrainSpec) -> SolverSpec:
    """The solver of a training; SGD with momentum for a net. Raises `InputError` for a net without losses."""
    net = net_of(spec)
    if not net.losses:
        hint = "add `losses`, so that there is something to train"
        raise InputError("this net has no losses: it can't be trained", location=net.where(), hint=hint)
    if isinstance(spec, TrainSpec):
        assert isinstance(spec.solver, SolverSpec)
        return spec.solver
    return SGD(type="SGD", momentum=0.9)


def measure(spec: NetSpec | TrainSpec, sizes: Sequence[int], device: str = "auto") -> Measured:
    """Time steps of batch sizes on this machine, with made-up inputs, and how long adding up takes."""
    facts, loop = layers_of(spec), spec.train if isinstance(spec, TrainSpec) else None
    works = [
        _timed(
            time_net(
                net_of(spec), size, solver=training_of(spec), dtype=precision_of(spec), device=device,
                autotune=autotune_of(spec), rounding=rounding_of(spec), deterministic=deterministic_of(spec),
                loop=loop,
            ),
            facts,
        )
        for size in sizes
    ]  # fmt: skip
    name = open_device(device).name
    how = ", ".join(f"{work.seconds * 1000:,.1f} ms for {work.batch:,.0f}" for work in works)
    return Measured(Compute(tuple(works)), _adding(), f"measured on {name}: {how}")


def given(spec: NetSpec | TrainSpec, seconds: float, batch: int) -> Measured:
    """Steps of which one, of `batch` samples, takes `seconds`: divided by the layers' arithmetic.

    Backward has twice the arithmetic of forward: a product each for the gradients of inputs and of weights.
    """
    facts = layers_of(spec)
    flops = sum(cost.flops for _, cost in facts) or 1
    layers = tuple(
        replace(layer, forward=seconds * cost.flops / flops / 3, backward=2 * seconds * cost.flops / flops / 3)
        for layer, cost in facts
    )
    accumulate = spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    work = Work(batch, layers, accumulate=accumulate)
    return Measured(Compute((work,)), 0.0, f"given: {seconds * 1000:,.1f} ms for {batch:,}")


def as_trained(job: Job, spec: NetSpec | TrainSpec, every: int | None = None) -> Job:
    """The job with what the training file says of how gradients and averages travel; `every` goes before that."""
    found = spec.parallel if isinstance(spec, TrainSpec) else None
    reduced = found if isinstance(found, Synchronous) else AllReduce()
    averaged = found if isinstance(found, (LocalSGD, ElasticAveraging)) else LocalSGD()
    steps = averaged.every if every is None else every
    info = [one for one in _compiler(spec).info.values() if one.value.dtype.is_float]
    kept = sum(one.value.type.nbytes for one in info if one.role in AVERAGED)
    centered = sum(one.value.type.nbytes for one in info if one.trainable or one.role == "statistic")
    job = replace(
        job, first_bucket=reduced.first_bucket, bucket=reduced.bucket, every=steps, averaged=kept, centered=centered
    )
    if isinstance(found, Pipeline):
        job = replace(job, micro_batches=found.micro_batches)
    if isinstance(found, (OneBit, TopK)):
        job = replace(job, smallest=found.smallest)
    if isinstance(found, Model):
        job = replace(job, ways=found.layers)
    if isinstance(found, ParameterServer):
        job = replace(job, servers=found.servers)
    return job


def sizes_to_measure(samples: int, workers: Iterable[int], *, per_worker: bool) -> list[int]:
    """Batch sizes to time: the smallest share of a worker, the largest, which is the whole batch, and one between."""
    if per_worker:
        return [min(samples, LARGEST)]
    shares = sorted({samples, *(-(-samples // count) for count in workers)})
    shares = [size for size in shares if size <= LARGEST] or [LARGEST // 2, LARGEST]
    middle = (shares[0] * shares[-1]) ** 0.5
    return sorted({shares[0], min(shares, key=lambda size: abs(size - middle)), shares[-1]})


def layers_of(spec: NetSpec | TrainSpec) -> list[tuple[Layer, LayerCost]]:
    """The layers with what is trained of them, not yet timed; nothing is allocated."""
    compiler = _compiler(spec)
    costs = list(layer_costs(compiler, compiler.built(Purpose.PREDICT, 1)))
    trained = defaultdict[str, list[tuple[int, ...]]](list)
    for state in compiler.info.values():
        if state.trainable:
            trained[state.value.node.scope.layer].append(tuple(state.value.shape))
    carried = _carried(net_of(spec), costs)
    dense = _dense(net_of(spec), compiler.built(compiler.of_batch, 1))
    return [
        (Layer(one.name, tuple(trained[one.name]), 0.0, 0.0, output=carried[one.name], dense=dense.get(one.name)), one)
        for one in costs
    ]


def _compiler(spec: NetSpec | TrainSpec) -> Compiler:
    """That of one worker alone."""
    loop = spec.train if isinstance(spec, TrainSpec) else None
    return Compiler(
        net_of(spec), solver=training_of(spec), dtype=precision_of(spec), device=open_device("null"), loop=loop
    )


def _dense(net: NetSpec, built: Built) -> dict[str, Dense]:
    """The layers whose weights are a matrix that samples are multiplied by, by their names."""
    found, before = dict[str, Dense](), None
    for one in divisible(net, built):
        follows = before is not None and one.follows == before
        found[one.layer], before = Dense(one.inputs, one.units, one.positions, follows), one.kernel
    return found


def _carried(net: NetSpec, costs: Sequence[LayerCost]) -> dict[str, int]:
    """Bytes a sample of what is still read after each layer, by its name."""
    links = resolve_names(net)
    last = dict[str, int]()
    for place, link in enumerate(links.layers):
        last |= dict.fromkeys(link.sources, place)
    last |= dict.fromkeys([name for loss in links.losses for name in loss.sources], len(links.layers))
    made = [(place, name, 4 * int(np.prod(shape)))
            for place, cost in enumerate(costs) for name, shape in cost.outputs.items()]  # fmt: skip
    return {
        cost.name: sum(nbytes for begin, name, nbytes in made if begin <= place < last.get(name, begin))
        for place, cost in enumerate(costs)
    }


def _timed(found: Timing, facts: Sequence[tuple[Layer, LayerCost]]) -> Work:
    """The layers with their times; those of nodes are medians of their own, which may add up to more than a step."""
    by_name = {one.name: one for one in found.layers}
    share = min(1.0, found.step_seconds / found.nodes_seconds)
    layers = list[Layer]()
    losses = [Layer(name, (), 0.0, 0.0) for name in by_name if name and name not in {one.name for one, _ in facts}]
    for layer in [*(one for one, _ in facts), *losses]:
        phases = by_name[layer.name].phases if layer.name in by_name else {}
        forward, backward, update = (share * phases.get(name, 0.0) for name in ("forward", "backward", "update"))
        layers.append(replace(layer, forward=forward, backward=backward, update=update))
    timed = sum(one.forward + one.backward + one.update for one in layers)
    return Work(found.batch_size, tuple(layers), max(0.0, found.step_seconds - timed), found.batches)


def _adding() -> float:
    """Seconds a byte that adding up a float32 array takes: the fastest of a few times."""
    total, other = np.zeros(ADDED // 4, np.float32), np.ones(ADDED // 4, np.float32)
    best = float("inf")
    for _ in range(5):
        start = perf_counter()
        np.add(total, other, out=total)
        best = min(best, perf_counter() - start)
    return best / ADDED
