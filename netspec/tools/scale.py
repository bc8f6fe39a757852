"""What `netspec scale` predicts from: a net's step, measured here or given, layer by layer, as numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from netspec.backends.device_registry import open_device
from netspec.compile import Compiler, NetGraph, ProgramKind
from netspec.distributed.cost_model.networks import Cluster, Network
from netspec.distributed.cost_model.plans import Job
from netspec.distributed.cost_model.strategies import Prediction
from netspec.distributed.cost_model.workload import Compute, Dense, Layer, Work
from netspec.distributed.partitioning.tensor_parallel import splittable_layers
from netspec.distributed.strategies.all_reduce import AllReduce
from netspec.distributed.strategies.base import SynchronousStrategy
from netspec.distributed.strategies.elastic_averaging import ElasticAveraging
from netspec.distributed.strategies.local_sgd import AVERAGED, LocalSGD
from netspec.distributed.strategies.one_bit import OneBit
from netspec.distributed.strategies.parameter_server import ParameterServer
from netspec.distributed.strategies.pipeline import Pipeline
from netspec.distributed.strategies.tensor_parallel import TensorParallel
from netspec.distributed.strategies.top_k import TopK
from netspec.errors import InputError
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.sgd import SGD
from netspec.tools.charts import Chart, Curve, Scale
from netspec.tools.plan import LayerCost, layer_costs
from netspec.tools.specs import autotune_of, deterministic_of, net_of, precision_of, rounding_of
from netspec.tools.timing import Timing, time_net

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
    """Time steps of several batch sizes on this machine, with synthetic inputs, and the addition of arrays."""
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
    reduced = found if isinstance(found, SynchronousStrategy) else AllReduce()
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
    if isinstance(found, TensorParallel):
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
    costs = list(layer_costs(compiler, compiler.net_graph(ProgramKind.PREDICT, 1)))
    trained = defaultdict[str, list[tuple[int, ...]]](list)
    for state in compiler.info.values():
        if state.trainable:
            trained[state.value.node.scope.layer].append(tuple(state.value.shape))
    carried = _carried(net_of(spec), costs)
    dense = _dense(net_of(spec), compiler.net_graph(compiler.batch_program, 1))
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


def _dense(net: NetSpec, built: NetGraph) -> dict[str, Dense]:
    """The layers whose weights are a matrix that samples are multiplied by, by their names."""
    found, before = dict[str, Dense](), None
    for one in splittable_layers(net, built):
        follows = before is not None and one.preceding_kernel == before
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


@dataclass(frozen=True)
class Scaling:
    """Predictions for each strategy and number of workers."""

    name: str
    how: str
    """Where the times of one worker come from."""
    job: Job
    cluster: Cluster
    """Its ranks are those of each prediction instead."""
    counts: Sequence[int]
    predictions: Mapping[str, Sequence[Prediction | str]]
    """For each number of workers, or why there is none."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain data: seconds and bytes, of a step."""
        job = self.job
        return {
            "name": self.name,
            "samples": job.samples,
            "per_worker": job.per_worker,
            "gradient_bytes": job.compute.known[0].nbytes,
            "one_worker": {
                "from": self.how,
                "samples_per_second": job.alone,
                "steps": [{"samples": one.batch, "seconds": one.seconds} for one in job.compute.known],
                "adding_seconds_per_byte": job.adding,
            },
            "network": _network(self.cluster.between),
            "within": _network(self.cluster.within),
            "workers_per_host": self.cluster.per_host,
            "predictions": [
                self._prediction(name, number, one)
                for name, row in self.predictions.items()
                for number, one in zip(self.counts, row, strict=True)
            ],
        }

    def _prediction(self, strategy: str, workers: int, found: Prediction | str) -> dict[str, Any]:
        made: dict[str, Any] = {"strategy": strategy, "workers": workers, "hosts": self.cluster.of(workers).hosts}
        if isinstance(found, str):
            return {**made, "impossible": found}
        return {
            **made,
            "samples": found.batch,
            "step_seconds": found.times.step,
            "compute_seconds": found.times.compute,
            "communication_seconds": found.times.communication,
            "exposed_seconds": found.times.exposed,
            "waiting_seconds": found.times.waiting,
            "samples_per_second": found.samples_per_second,
            "speedup": found.speedup,
            "efficiency": found.efficiency,
            "sent_bytes": found.traffic.by_role,
            "total_bytes": found.traffic.total,
            "between_hosts_bytes": found.traffic.between_hosts,
        }

    def charts(self) -> list[Chart]:
        """Speedup and efficiency over the number of workers."""
        figures: list[tuple[str, Callable[[Prediction], float]]] = [
            ("speedup", lambda one: one.speedup),
            ("efficiency", lambda one: one.efficiency),
        ]
        doubled = Scale(logarithmic=True)
        return [
            Chart(
                f"{self.name}: {title}, {self.cluster.between.name}", "workers",
                [curve for name in self.predictions if (curve := self._curve(name, figure)).xs],
                doubled if title == "speedup" else Scale(), doubled,
            )
            for title, figure in figures
        ]  # fmt: skip

    def _curve(self, name: str, figure: Callable[[Prediction], float]) -> Curve:
        found = [
            (number, figure(one))
            for number, one in zip(self.counts, self.predictions[name], strict=True)
            if not isinstance(one, str)
        ]
        return Curve(name, [number for number, _ in found], [value for _, value in found])

    def left_out(self) -> Iterator[str]:
        """Why some strategies have no prediction, a line for each."""
        for name, row in self.predictions.items():
            reasons = [(number, one) for number, one in zip(self.counts, row, strict=True) if isinstance(one, str)]
            if reasons:
                numbers, reason = [number for number, _ in reasons], reasons[0][1]
                onwards = len(numbers) > 1 and numbers == list(self.counts[-len(numbers) :])
                lacking = numbers[:1] if onwards else numbers
                which = ", ".join(f"{one:,}" for one in lacking) + " workers" + ", nor more" * onwards
                yield f"{name} has none for {which}: {reason}"


def _network(found: Network) -> dict[str, Any]:
    return {"name": found.name, "alpha": found.alpha, "beta": found.beta, "source": found.source}
