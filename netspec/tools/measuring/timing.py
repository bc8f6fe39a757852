"""Time of a net's step on synthetic inputs, in total and by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from netspec.backends.program import NonFiniteLoss, Program
from netspec.compile import FIRST, MOMENTUM, SHARE, STEP, WEIGHT, Compiler, ProgramKind, is_rate
from netspec.compile.layer_costs import flops_of
from netspec.distributed import world
from netspec.distributed.world import join
from netspec.errors import InputError, RunError
from netspec.exchange.formats.onnx.verify import random_inputs
from netspec.graph.kernel import NoKernelError
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.value import Node, Value
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.links import LayerLink, LossLink, MetricLink, resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.bounds import require_at_least
from netspec.tools.compilers import compiler_for, device_for, solver_or_default
from netspec.tools.measuring.roofline import Roofline, measure_roofline
from netspec.tools.specs import batch_size_of, load_spec

if TYPE_CHECKING:
    from netspec.tools.measuring.overlap import Overlap

BUDGET = 2.0
"""Seconds for each of the two series, whole steps and node by node, if the number of steps is not given."""
MIN_STEPS, MAX_STEPS = 5, 500
"""Limits of the number of steps in a series, whatever the budget."""
PHASES = ("forward", "backward", "update", "communication")


@dataclass(frozen=True)
class Cost:
    """Time and work of a part of the step."""

    seconds: float
    """Median of a node, or the sum of the medians of several nodes."""
    flops: int
    bytes: int
    """Bytes of all operands and results, read and written."""
    least_seconds: float
    """Seconds of the same work at the machine's measured rates, node by node."""

    def rates(self, total_seconds: float) -> dict[str, float]:
        """FLOP/s, bytes/s, the share of `total_seconds`, and the ratio of the roofline time to the measured time."""
        return {
            "flops_per_second": _ratio(self.flops, self.seconds),
            "bytes_per_second": _ratio(self.bytes, self.seconds),
            "share": _ratio(self.seconds, total_seconds),
            "of_roofline": _ratio(self.least_seconds, self.seconds),
        }


@dataclass(frozen=True)
class NodeTime(Cost):
    """One node of the program."""

    op: str
    layer: str
    """The layer it stems from; of a node fused from several layers, the last; empty for what belongs to none."""
    phase: str
    """One of `PHASES`; times in `communication` are means over workers."""
    kernel: str
    types: tuple[str, ...]
    """Element type in memory and shape of each result."""


@dataclass(frozen=True)
class LayerTime(Cost):
    """All nodes of one layer or loss, or those that belong to neither."""

    name: str
    type: str
    phases: dict[str, float]
    """Seconds by phase."""


@dataclass(frozen=True)
class Timing:
    """Times of a step, in total, by layer and by operation."""

    name: str
    purpose: str
    """`train`, or `predict`."""
    batch_size: int
    batches: int
    """Number of batches per step."""
    workers: int
    """Number of workers of the step; layers and nodes are those of rank 0."""
    all_samples: int
    """Samples in a batch of all workers; `batch_size` is the share of rank 0."""
    precision: str
    device: str
    remark: str | None
    """Reason why the device is this one, if that needs an explanation."""
    solver: str | None
    compile_seconds: float
    """Seconds from the checked spec to a program that can run."""
    steps: int
    """Number of complete steps measured; as many were measured node by node."""
    step_seconds: float
    """Median of complete steps, including the copy of inputs but not data loading."""
    fastest_step_seconds: float
    flops: int
    roofline: Roofline
    types: dict[str, str]
    """Type of each layer, loss and the solver, by name."""
    nodes: tuple[NodeTime, ...]
    """Nodes of each step, in the order of execution."""
    invariant_nodes: tuple[NodeTime, ...]
    """Nodes that run only when states have changed."""
    communication: Overlap | None = None
    """Messages of several workers; None for one."""

    @property
    def samples_per_second(self) -> float:
        """Samples per second of complete steps, of all workers."""
        return self.batches * self.all_samples / self.step_seconds

    @property
    def nodes_seconds(self) -> float:
        """Seconds of all nodes of a step; the rest of a step copies inputs and calls the nodes."""
        return sum(node.seconds for node in self.nodes)

    @property
    def invariant_seconds(self) -> float:
        """Seconds of all invariant nodes."""
        return sum(node.seconds for node in self.invariant_nodes)

    @property
    def layers(self) -> list[LayerTime]:
        """The nodes summed by layer, in the order of the net; nodes without a layer come last."""
        nodes_by_layer = {name: [node for node in self.nodes if node.layer == name] for name in [*self.types, ""]}
        return [self._layer(name, nodes) for name, nodes in nodes_by_layer.items() if nodes]

    def _layer(self, name: str, nodes: Sequence[NodeTime]) -> LayerTime:
        return LayerTime(
            seconds=sum(node.seconds for node in nodes),
            flops=sum(node.flops for node in nodes),
            bytes=sum(node.bytes for node in nodes),
            least_seconds=sum(node.least_seconds for node in nodes),
            name=name,
            type=self.types.get(name, self.solver or ""),
            phases={phase: sum(node.seconds for node in nodes if node.phase == phase) for phase in PHASES},
        )

    def as_json(self) -> dict[str, Any]:
        """The timing as plain data, with rates, layers and shares."""
        data = asdict(self)
        del data["types"], data["communication"]
        data["samples_per_second"] = self.samples_per_second
        data["flops_per_second"] = self.flops / self.step_seconds
        data["layers"] = [{**asdict(layer), **layer.rates(self.nodes_seconds)} for layer in self.layers]
        data["nodes"] = [{**asdict(node), **node.rates(self.nodes_seconds)} for node in self.nodes]
        data["invariant_seconds"] = self.invariant_seconds
        if self.communication is not None:
            data["communication"] = self.communication.as_json()
        return data


def time(
    source: Source,
    *,
    overrides: Overrides = (),
    batch_size: int | None = None,
    steps: int | None = None,
    inference: bool = False,
    device: str = "auto",
    autotune: str | None = None,
) -> Timing:
    """Time the training step of a net or training file: in total, by layer and by operation. No data is read.

    Inputs are synthetic, and the learning rate is 1e-8. A net file is trained by SGD with momentum; without losses, or
    with `inference`, its prediction is timed. `batch_size` defaults to that of the training file, or 1 for a net;
    `steps` to as many as fit into two seconds.

    One process times one worker. To time several, start the script by `mpiexec -n 4 python script.py`, or run
    `netspec time --workers 4`: every worker calls this function, each gets the timing of its own step, and
    `communication` says how much of their messages the step hides.

    Raises `InputError` if the spec is wrong or cannot be spread over the workers, `RunError` if the step fails.

        >>> netspec.time("train.yaml").samples_per_second
    """
    require_at_least(1, {"--batch-size": batch_size, "--steps": steps})
    workers = join().size  # processes that did not join their job would each time one worker
    spec = load_spec(source, overrides)
    samples = batch_size_of(spec, batch_size)
    if workers > 1:
        from netspec.tools.measuring.overlap import time_workers  # one worker loads nothing of several

        check_timed_workers(spec, workers, samples, inference=inference)
        return time_workers(spec, samples, device, steps)
    began, solver = perf_counter(), None if inference else solver_or_default(spec)
    return time_compiled(compiler_for(spec, solver, device_for(spec, device, autotune)), samples, steps, began)


def check_timed_workers(spec: NetSpec | TrainSpec, workers: int, batch_size: int, *, inference: bool) -> None:
    """Raise `InputError` if the step of a training cannot be timed on that many workers."""
    from netspec.tools.planning.worker_plan import check_spread

    if inference:
        raise InputError("--inference runs on one worker", hint="leave out --workers, or --inference")
    check_spread(spec, workers, batch_size)


Runs: TypeAlias = list[list[tuple[Node | None, float]]]
"""Runs of a program: the nodes of each, with their seconds."""
Part: TypeAlias = tuple[Program, Callable[[], None], int]
"""Part of a step: a program, a function that writes its inputs, and how many times a step runs it."""
Measure: TypeAlias = Callable[[Sequence[Part], int | None], tuple[list[float], list[Runs]]]
"""Measures parts for N steps: seconds of complete steps, and of each part's nodes."""


def time_compiled(
    compiler: Compiler, batch_size: int, steps: int | None, began: float, *,
    measure: Measure | None = None, workers: int = 1, all_samples: int | None = None,
) -> Timing:  # fmt: skip
    """Time a compiled step on synthetic inputs, on one worker, or on several that all call this.

    `began` is when compilation began. The learning rate is nearly 0, so that synthetic data does not change the
    weights. Raises `RunError` if the step does not run.
    """
    net, solver, dtype = compiler.spec, compiler.solver, compiler.precision
    parts = parts_of_step(compiler, batch_size)
    opened, batches = compiler.device, parts[0][1]
    took = perf_counter() - began
    step_seconds, by_node = (measure or _measure)(
        [(program, writer(compiler, program), times) for program, times in parts], steps
    )
    names = resolve_names(net)
    links: list[LayerLink | LossLink | MetricLink] = [*names.layers, *names.losses, *names.metrics]
    roofline = measure_roofline(opened, dtype)
    nodes, invariant = list[NodeTime](), list[NodeTime]()
    for (program, times), runs in zip(parts, by_node, strict=True):
        nodes += _nodes(program, runs, roofline, times)
        invariant += _nodes(program, [program.timed_invariant() for _ in range(MIN_STEPS)], roofline)
    return Timing(
        name=net.name,
        purpose=str(ProgramKind.TRAIN if solver else ProgramKind.PREDICT),
        batch_size=batch_size,
        batches=batches,
        workers=workers,
        all_samples=batch_size if all_samples is None else all_samples,
        precision=str(dtype),
        device=opened.name,
        remark=opened.remark,
        solver=str(solver.type) if solver else None,
        compile_seconds=took,
        steps=len(step_seconds),
        step_seconds=median(step_seconds),
        fastest_step_seconds=min(step_seconds),
        flops=sum(node.flops for node in nodes),
        roofline=roofline,
        types={link.name: str(getattr(link.fields, "type", "")) for link in links},
        nodes=tuple(nodes),
        invariant_nodes=tuple(invariant),
    )


def parts_of_step(compiler: Compiler, batch_size: int) -> list[tuple[Program, int]]:
    """Return the programs of a step, with their number of runs. Raises `RunError` if a part has no kernel."""
    purpose = compiler.batch_program if compiler.solver else ProgramKind.PREDICT
    batches = compiler.loop.accumulate if compiler.loop is not None and compiler.updates else 1
    try:
        parts = [(compiler.program(purpose, batch_size), batches)]
        if compiler.updates:
            parts.append((compiler.program(ProgramKind.UPDATE, 1), 1))
    except NoKernelError as error:
        raise RunError(f"there is no kernel for a part of this net: {error}") from None
    return parts


def writer(compiler: Compiler, program: Program, seed: int = 0) -> Callable[[], None]:
    """Return a function that copies synthetic inputs into the program: normal deviates, or valid integers."""
    types = {name: value.type for name, value in program.inputs.items() if name in compiler.spec.inputs}
    inputs = random_inputs(types, compiler.domains, seed)
    # Small enough to leave the weights unchanged, but not 0: some solvers divide by the rate.
    inputs |= {name: np.array(1e-8) for name in program.inputs if is_rate(name)}
    inputs |= {name: np.array(0.5) for name in program.inputs if name.partition("/")[0] == MOMENTUM}
    inputs |= {WEIGHT: np.array(1.0), FIRST: np.array(True), SHARE: np.array(1.0)}
    inputs |= {STEP: np.array(1.0), RNG_INPUT: np.array([seed, 0, 0])}
    return lambda: program.write(inputs)


def run_step(parts: Sequence[Part]) -> float:
    """Run the parts of a step; return its duration in seconds."""
    start = perf_counter()
    for program, write, times in parts:
        for _ in range(times):
            write()
            program.run()
    parts[-1][0].device.wait()
    return perf_counter() - start


def warm_up(parts: Sequence[Part], steps: int | None) -> int:
    """Run two warm-up steps; return how many to measure, the same on all workers."""
    try:
        run_step(parts)
        first = run_step(parts)
    except NonFiniteLoss:
        raise RunError("the loss of synthetic inputs is not finite: there is no step to time") from None
    return steps or int(world().broadcast_object(max(MIN_STEPS, min(MAX_STEPS, int(BUDGET / max(first, 1e-6))))))


def _measure(parts: Sequence[Part], steps: int | None) -> tuple[list[float], list[Runs]]:
    """Time complete steps and steps node by node, in turn, on one worker. Has the type `Measure`."""
    step_seconds, by_node = [], [Runs() for _ in parts]
    for _ in range(warm_up(parts, steps)):
        step_seconds.append(run_step(parts))
        for (program, write, _), runs in zip(parts, by_node, strict=True):
            write()
            runs.append(program.timed())
    return step_seconds, by_node


def _nodes(
    program: Program, runs: Sequence[Sequence[tuple[Node | None, float]]], roofline: Roofline, times: int = 1
) -> Iterator[NodeTime]:
    """Yield each node with its median time, multiplied by the `times` that a step runs the program.

    States copied at the end of a run count as one node.
    """
    copied = [0.0] * len(runs)
    for calls in zip(*runs, strict=True):
        node, seconds = calls[0][0], [duration for _, duration in calls]
        if node is None:
            copied = [before + duration for before, duration in zip(copied, seconds, strict=True)]
            continue
        flops, nbytes = (times * number for number in node_work(program, node))
        yield NodeTime(
            seconds=times * median(seconds),
            flops=flops,
            bytes=nbytes,
            least_seconds=roofline.seconds(flops, nbytes),
            op=node.op.name,
            layer=node.scope.layer,
            phase=node.scope.phase,
            kernel=program.plan.choices[node].label,
            types=stored_types(program, node.outputs),
        )
    if program.plan.memory.copies and any(node is None for node, _ in runs[0]):
        nbytes = times * sum(2 * value.type.nbytes for value, _ in program.plan.memory.copies)
        least = roofline.seconds(0, nbytes)
        yield NodeTime(
            times * median(copied), 0, nbytes, least, "copies of states", "", "update", program.device.name, ()
        )


def node_work(program: Program, node: Node) -> tuple[int, int]:
    """Return the FLOPs of a node, and the bytes of its operands and results."""
    stored, layouts = program.plan.memory.storage, program.plan.layouts
    values = [*dict.fromkeys(node.inputs), *(value for value in node.outputs if value in stored)]
    nbytes = sum(layouts[value].nbytes(value.type) for value in values)
    return flops_of(node), nbytes


def stored_types(program: Program, values: Sequence[Value]) -> tuple[str, ...]:
    """Stored element type and shape of each value."""
    layouts = program.plan.layouts
    return tuple(str(value.type.with_dtype(layouts[value].stored_dtype(value.type))) for value in values)


def _ratio(part: float, total: float) -> float:
    return part / total if total else 0.0
