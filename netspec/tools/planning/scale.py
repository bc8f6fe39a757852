"""Predict the step time and speedup of a training on many workers, from a step measured or given layer by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from netspec.backends.device_registry import open_device
from netspec.compile import Compiler, NetGraph, ProgramKind
from netspec.compile.layer_costs import LayerCost, layer_costs
from netspec.distributed.cost_model.collectives import parse_algorithm
from netspec.distributed.cost_model.networks import Cluster, Network, parse_network
from netspec.distributed.cost_model.plans import TrainingJob
from netspec.distributed.cost_model.strategies import STRATEGIES, StepPrediction, predict
from netspec.distributed.cost_model.workload import ComputeModel, DenseShape, Layer, StepCost
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
from netspec.errors import InputError, Location, did_you_mean, listing
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.bounds import require_at_least
from netspec.tools.compilers import compiler_for, device_for, required_solver
from netspec.tools.measuring.timing import Timing, time_compiled
from netspec.tools.specs import load_spec, net_of
from netspec.training.plotting.chart_drawing import write_charts
from netspec.training.plotting.charts import AxisScale, Chart, Curve

LARGEST = 256
"""Samples of the largest batch that is measured; times of larger ones are extrapolated linearly."""
ADDED = 2**24
"""Bytes of the arrays that are added to measure the rate of additions."""
MAX_WORKERS = 2**20
MAX_COUNTS = 32
"""Maximum number of worker counts in one report."""
DEFAULT_WORKERS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class WorkerTimes:
    """Times of a training step on one worker, for some batch sizes."""

    compute: ComputeModel
    adding: float
    """Seconds per byte of adding up arrays."""
    origin: str
    """Origin of the times, as text."""


@dataclass(frozen=True)
class ScalingReport:
    """Predicted steps of a training, for each strategy and number of workers."""

    name: str
    """Name of the net."""
    origin: str
    """Origin of the times of one worker."""
    job: TrainingJob
    """Work of one worker, the batch, and the settings of the strategies."""
    cluster: Cluster
    """Hosts and networks; its number of ranks is that of one worker."""
    workers: Sequence[int]
    """Numbers of workers, ascending."""
    predictions: Mapping[str, Sequence[StepPrediction | str]]
    """Predictions for each of `workers`, or the reason why there are none, by strategy."""

    def as_json(self) -> dict[str, Any]:
        """The report as plain data; seconds and bytes are those of a step."""
        job = self.job
        return {
            "name": self.name,
            "samples": job.samples,
            "per_worker": job.per_worker,
            "gradient_bytes": job.compute.steps[0].nbytes,
            "one_worker": {
                "from": self.origin,
                "samples_per_second": job.alone,
                "steps": [{"samples": step.batch, "seconds": step.seconds} for step in job.compute.steps],
                "adding_seconds_per_byte": job.adding,
            },
            "network": _network(self.cluster.between),
            "within": _network(self.cluster.within),
            "workers_per_host": self.cluster.per_host,
            "predictions": [
                self._prediction(name, number, prediction)
                for name, row in self.predictions.items()
                for number, prediction in zip(self.workers, row, strict=True)
            ],
        }

    def _prediction(self, strategy: str, workers: int, prediction: StepPrediction | str) -> dict[str, Any]:
        data: dict[str, Any] = {"strategy": strategy, "workers": workers, "hosts": self.cluster.of(workers).hosts}
        if isinstance(prediction, str):
            return {**data, "impossible": prediction}
        return {
            **data,
            "samples": prediction.batch,
            "step_seconds": prediction.times.step,
            "compute_seconds": prediction.times.compute,
            "communication_seconds": prediction.times.communication,
            "exposed_seconds": prediction.times.exposed,
            "waiting_seconds": prediction.times.waiting,
            "samples_per_second": prediction.samples_per_second,
            "speedup": prediction.speedup,
            "efficiency": prediction.efficiency,
            "sent_bytes": prediction.traffic.by_role,
            "total_bytes": prediction.traffic.total,
            "between_hosts_bytes": prediction.traffic.between_hosts,
        }

    def charts(self) -> list[Chart]:
        """Speedup and efficiency over the number of workers."""
        quantities: list[tuple[str, Callable[[StepPrediction], float]]] = [
            ("speedup", lambda prediction: prediction.speedup),
            ("efficiency", lambda prediction: prediction.efficiency),
        ]
        doubled = AxisScale(logarithmic=True)
        return [
            Chart(
                f"{self.name}: {title}, {self.cluster.between.name}", "workers",
                [curve for name in self.predictions if (curve := self._curve(name, quantity)).xs],
                doubled if title == "speedup" else AxisScale(), doubled,
            )
            for title, quantity in quantities
        ]  # fmt: skip

    def _curve(self, name: str, quantity: Callable[[StepPrediction], float]) -> Curve:
        points = [
            (number, quantity(prediction))
            for number, prediction in zip(self.workers, self.predictions[name], strict=True)
            if not isinstance(prediction, str)
        ]
        return Curve(name, [number for number, _ in points], [value for _, value in points])

    def write_svg(self, path: Path) -> None:
        """Write the charts to an SVG file."""
        write_charts(self.charts(), path)

    def missing(self) -> Iterator[str]:
        """Reasons why strategies have no prediction for some numbers of workers, one line per strategy."""
        for name, row in self.predictions.items():
            reasons = [
                (number, prediction)
                for number, prediction in zip(self.workers, row, strict=True)
                if isinstance(prediction, str)
            ]
            if reasons:
                numbers, reason = [number for number, _ in reasons], reasons[0][1]
                onwards = len(numbers) > 1 and numbers == list(self.workers[-len(numbers) :])
                lacking = numbers[:1] if onwards else numbers
                numbers_text = ", ".join(f"{number:,}" for number in lacking) + " workers" + ", nor more" * onwards
                yield f"{name} has none for {numbers_text}: {reason}"


def scale(
    source: Source,
    *,
    overrides: Overrides = (),
    workers: Iterable[int] | None = None,
    batch_size: int | None = None,
    per_worker: bool = False,
    network: str = "ib-hdr",
    within: str = "shared-memory",
    workers_per_host: int = 1,
    strategies: Sequence[str] | None = None,
    algorithm: str = "auto",
    step_time: float | None = None,
    compute_scale: float = 1.0,
    jitter: float = 0.0,
    servers: int | None = None,
    every: int | None = None,
    density: float = 0.01,
    micro_batches: int | None = None,
    device: str = "auto",
) -> ScalingReport:
    """Predict the step time and speedup of a training on many workers, from steps timed on this machine.

    `workers` are the numbers of workers to predict for, by default 1, 2, 4, … 64, as far as the batch has samples for
    them. `batch_size` counts the samples of all workers together, or with `per_worker` those of each; by default it is
    the training file's. `network` connects hosts and `within` the workers of a host: names such as `"ib-hdr"`, or
    `"alpha=2us,beta=0.1ns"` for a latency and the time of a byte. `strategies` defaults to all; `algorithm` selects the
    all-reduce. `step_time`, in seconds, replaces the measurement; `compute_scale` assumes faster workers; `jitter` is
    the standard deviation of a worker's computing time, as a fraction of it. `servers`, `every`, `density` (a fraction)
    and `micro_batches` set `parameter_server`, `local_sgd`, `top_k` and `pipeline`.

    Raises `InputError` if the spec or an argument is wrong.

        >>> report = netspec.scale("train.yaml", workers=[8, 64, 512], network="ethernet-25g")
        >>> report.predictions["all_reduce"][0].speedup
    """
    require_at_least(1, {
        "--workers-per-host": workers_per_host, "--servers": servers, "--every": every,
        "--micro-batches": micro_batches, "--batch-size": batch_size,
    })  # fmt: skip
    _check_ranges(
        {"--compute-scale": compute_scale, "--step-time": step_time},
        {"--jitter": (jitter, 0.0), "--density": (density, 1e-9)},
    )  # fmt: skip
    cluster = Cluster(1, parse_network(network), parse_network(within, "--within"), workers_per_host)
    chosen, reduction = _strategies(strategies), parse_algorithm(algorithm)
    counts = _worker_counts(DEFAULT_WORKERS if workers is None else workers)
    spec = load_spec(source, overrides)
    samples = _samples(spec, batch_size, per_worker=per_worker)
    if not per_worker:
        if workers is None:
            counts = [count for count in counts if count <= samples]
        _check_samples(spec, samples, counts[-1], in_file=batch_size is None)
    if step_time is not None:
        base = from_step_time(spec, step_time, samples)
    else:
        base = measure(spec, sizes_to_measure(samples, counts, per_worker=per_worker), device)
    job = TrainingJob(
        base.compute.faster(compute_scale), samples, per_worker, reduction, adding=base.adding / compute_scale,
        jitter=jitter, density=density, servers=servers, micro_batches=micro_batches,
    )  # fmt: skip
    job = as_trained(job, spec, every)
    predictions = {name: [predict(name, job, cluster.of(count)) for count in counts] for name in chosen}
    return ScalingReport(net_of(spec).name, base.origin, job, cluster, counts, predictions)


def _check_ranges(factors: Mapping[str, float | None], shares: Mapping[str, tuple[float, float]]) -> None:
    """Raise `InputError` for an option that is out of range; `shares` have a lower bound, and end at 1."""
    for option, factor in factors.items():
        if factor is not None and not 0 < factor < float("inf"):
            raise InputError(f"{option} must be above 0", got=str(factor))
    for option, (share, least) in shares.items():
        if not least <= share <= 1:
            expected = f"from {'0' if not least else 'above 0'} to 1 (100 %)"
            raise InputError(f"{option} is out of range", expected=expected, got=str(share))


def _worker_counts(workers: Iterable[int]) -> list[int]:
    counts = sorted(set(workers))

    def wrong(message: str) -> InputError:
        got = ", ".join(map(str, counts[:MAX_COUNTS])) + ", …" * (len(counts) > MAX_COUNTS)
        return InputError(f"--workers: {message}", expected="numbers such as 8, 16, 32", got=got or "none")

    if not counts or counts[0] < 1:
        raise wrong("there must be at least one worker")
    if counts[-1] > MAX_WORKERS:
        raise wrong(f"there may be at most {MAX_WORKERS:,}")
    if len(counts) > MAX_COUNTS:
        raise wrong(f"there may be at most {MAX_COUNTS} numbers")
    return counts


def _strategies(names: Sequence[str] | None) -> list[str]:
    all_names = list(STRATEGIES)
    for name in names or ():
        if name not in all_names:
            expected, hint = f"some of {listing(all_names)}", did_you_mean(name, all_names)
            raise InputError("--strategy: there is no such strategy", expected=expected, got=repr(name), hint=hint)
    return all_names if names is None else list(dict.fromkeys(names))


def _samples(spec: NetSpec | TrainSpec, batch_size: int | None, *, per_worker: bool) -> int:
    """Return the samples of a step of all workers, or with `per_worker` of each."""
    if batch_size is not None:
        return batch_size
    if per_worker:
        raise InputError("--batch-size is missing: it is the number of samples of each worker")
    if isinstance(spec, TrainSpec):
        return spec.data.train.batch_size
    raise InputError(
        "a net has no batch size", expected="--batch-size 256, or `--batch-size 32/worker`",
        hint="a training file has one; for a net, set it here",
    )  # fmt: skip


def _check_samples(spec: NetSpec | TrainSpec, samples: int, workers: int, *, in_file: bool) -> None:
    """Raise `InputError` if a batch has fewer samples than there are workers."""
    if workers > samples:
        where: Location | None = None
        if in_file and isinstance(spec, TrainSpec):
            where = spec.data.train.where("batch_size")
        raise InputError(
            f"a batch of {samples:,} is too small for {workers:,} workers", location=where,
            expected=f"at most {samples:,} workers, or a larger --batch-size",
            hint="`--batch-size 32/worker` sets the batch of each worker, whatever their number",
        )  # fmt: skip


def measure(spec: NetSpec | TrainSpec, sizes: Sequence[int], device: str = "auto") -> WorkerTimes:
    """Time steps of several batch sizes on this machine, with synthetic inputs, and the addition of arrays."""
    facts, compiler = layers_of(spec), compiler_for(spec, required_solver(spec), device_for(spec, device))
    works = [_timed(time_compiled(compiler, size, None, perf_counter()), facts) for size in sizes]
    name = compiler.device.name
    measurements = ", ".join(f"{work.seconds * 1000:,.1f} ms for {work.batch:,.0f}" for work in works)
    return WorkerTimes(ComputeModel(tuple(works)), _adding(), f"measured on {name}: {measurements}")


def from_step_time(spec: NetSpec | TrainSpec, seconds: float, batch: int) -> WorkerTimes:
    """Return times of a step of `batch` samples that takes `seconds`, split among layers by their FLOPs.

    The backward pass has twice the FLOPs of the forward pass: a product each for the gradients of inputs and of
    weights.
    """
    facts = layers_of(spec)
    flops = sum(cost.flops for _, cost in facts) or 1
    layers = tuple(
        replace(layer, forward=seconds * cost.flops / flops / 3, backward=2 * seconds * cost.flops / flops / 3)
        for layer, cost in facts
    )
    accumulate = spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    work = StepCost(batch, layers, accumulate=accumulate)
    return WorkerTimes(ComputeModel((work,)), 0.0, f"given: {seconds * 1000:,.1f} ms for {batch:,}")


def as_trained(job: TrainingJob, spec: NetSpec | TrainSpec, every: int | None = None) -> TrainingJob:
    """Apply the communication settings of the training file to a job; `every` overrides the file's."""
    strategy = spec.parallel if isinstance(spec, TrainSpec) else None
    reduced = strategy if isinstance(strategy, SynchronousStrategy) else AllReduce()
    averaged = strategy if isinstance(strategy, (LocalSGD, ElasticAveraging)) else LocalSGD()
    steps = averaged.every if every is None else every
    info = [state for state in _compiler(spec).info.values() if state.value.dtype.is_float]
    averaged_bytes = sum(state.value.type.nbytes for state in info if state.role in AVERAGED)
    centered = sum(state.value.type.nbytes for state in info if state.trainable or state.role == "statistic")
    job = replace(
        job,
        first_bucket=reduced.first_bucket,
        bucket=reduced.bucket,
        every=steps,
        averaged=averaged_bytes,
        centered=centered,
    )
    if isinstance(strategy, Pipeline):
        job = replace(job, micro_batches=strategy.micro_batches)
    if isinstance(strategy, (OneBit, TopK)):
        job = replace(job, smallest=strategy.smallest)
    if isinstance(strategy, TensorParallel):
        job = replace(job, ways=strategy.layers)
    if isinstance(strategy, ParameterServer):
        job = replace(job, servers=strategy.servers)
    return job


def sizes_to_measure(samples: int, workers: Iterable[int], *, per_worker: bool) -> list[int]:
    """Batch sizes to time: the smallest share of a worker, the whole batch, and one between."""
    if per_worker:
        return [min(samples, LARGEST)]
    shares = sorted({samples, *(-(-samples // count) for count in workers)})
    shares = [size for size in shares if size <= LARGEST] or [LARGEST // 2, LARGEST]
    middle = (shares[0] * shares[-1]) ** 0.5
    return sorted({shares[0], min(shares, key=lambda size: abs(size - middle)), shares[-1]})


def layers_of(spec: NetSpec | TrainSpec) -> list[tuple[Layer, LayerCost]]:
    """Return the layers with the shapes of their trained parameters, without times; nothing is allocated."""
    compiler = _compiler(spec)
    costs = list(layer_costs(compiler, compiler.net_graph(ProgramKind.PREDICT, 1)))
    trained = defaultdict[str, list[tuple[int, ...]]](list)
    for state in compiler.info.values():
        if state.trainable:
            trained[state.value.node.scope.layer].append(tuple(state.value.shape))
    carried = _carried(net_of(spec), costs)
    dense = _dense(net_of(spec), compiler.net_graph(compiler.batch_program, 1))
    return [
        (
            Layer(
                cost.name, tuple(trained[cost.name]), 0.0, 0.0, output=carried[cost.name], dense=dense.get(cost.name)
            ),
            cost,
        )
        for cost in costs
    ]


def _compiler(spec: NetSpec | TrainSpec) -> Compiler:
    """Return the compiler of a single worker."""
    return compiler_for(spec, required_solver(spec), open_device("null"))


def _dense(net: NetSpec, built: NetGraph) -> dict[str, DenseShape]:
    """Return the layers that multiply samples by a weight matrix, by name."""
    shapes, before = dict[str, DenseShape](), None
    for layer in splittable_layers(net, built):
        follows = before is not None and layer.preceding_kernel == before
        shapes[layer.layer], before = DenseShape(layer.inputs, layer.units, layer.positions, follows), layer.kernel
    return shapes


def _carried(net: NetSpec, costs: Sequence[LayerCost]) -> dict[str, int]:
    """Return the bytes per sample of all values that are still read after each layer, by name."""
    links = resolve_names(net)
    last = dict[str, int]()
    for position, link in enumerate(links.layers):
        last |= dict.fromkeys(link.sources, position)
    last |= dict.fromkeys([name for loss in links.losses for name in loss.sources], len(links.layers))
    produced = [(position, name, 4 * int(np.prod(shape)))
            for position, cost in enumerate(costs) for name, shape in cost.outputs.items()]  # fmt: skip
    return {
        cost.name: sum(nbytes for begin, name, nbytes in produced if begin <= position < last.get(name, begin))
        for position, cost in enumerate(costs)
    }


def _timed(timing: Timing, facts: Sequence[tuple[Layer, LayerCost]]) -> StepCost:
    """Return the layers with their times, scaled down if the nodes' medians add up to more than the step."""
    by_name = {layer.name: layer for layer in timing.layers}
    share = min(1.0, timing.step_seconds / timing.nodes_seconds)
    layers = list[Layer]()
    losses = [Layer(name, (), 0.0, 0.0) for name in by_name if name and name not in {fact.name for fact, _ in facts}]
    for layer in [*(fact for fact, _ in facts), *losses]:
        phases = by_name[layer.name].phases if layer.name in by_name else {}
        forward, backward, update = (share * phases.get(name, 0.0) for name in ("forward", "backward", "update"))
        layers.append(replace(layer, forward=forward, backward=backward, update=update))
    timed = sum(layer.forward + layer.backward + layer.update for layer in layers)
    return StepCost(timing.batch_size, tuple(layers), max(0.0, timing.step_seconds - timed), timing.batches)


def _adding() -> float:
    """Return the seconds per byte for adding float32 arrays: the fastest of a few runs."""
    total, addend = np.zeros(ADDED // 4, np.float32), np.ones(ADDED // 4, np.float32)
    best = float("inf")
    for _ in range(5):
        start = perf_counter()
        np.add(total, addend, out=total)
        best = min(best, perf_counter() - start)
    return best / ADDED


def _network(network: Network) -> dict[str, Any]:
    return {"name": network.name, "alpha": network.alpha, "beta": network.beta, "source": network.source}
