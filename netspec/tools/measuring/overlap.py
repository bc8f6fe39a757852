"""Measure how much of the communication in a step is hidden by computation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from time import perf_counter
from typing import Any

from netspec.backends.program import Program
from netspec.compile import Compiler
from netspec.distributed import world
from netspec.distributed.cost_model.comm_volume import message_bytes, program_messages, uniform_cluster
from netspec.distributed.session import WorkerSession
from netspec.errors import InputError
from netspec.graph.ops.all_reduce import CommunicationOp
from netspec.graph.types import TensorType
from netspec.graph.value import Node
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.measuring.timing import Part, Runs, Timing, run_step, time_compiled, warm_up
from netspec.tools.planning.worker_plan import compiler_of, session_of

MEETINGS = 10_000
"""Number of steps to search for one at which the strategy synchronizes the workers."""


@dataclass(frozen=True)
class MessageWait:
    """A message of a step: when it was sent, and how long it was waited for."""

    name: str
    contents: tuple[str, ...]
    bytes: float
    started_seconds: float
    """Seconds since the start of its program."""
    exposed_seconds: float
    """Seconds per step for sending it and waiting for it."""


@dataclass(frozen=True)
class Overlap:
    """Times of a step with communication, without it, and of the communication alone."""

    strategy: str
    workers: int
    steps: int
    step_seconds: float
    """Seconds of a step with communication, also between steps. A median, like all of these."""
    silent_seconds: float
    """Seconds of the same step without communication."""
    exposed_seconds: float
    """Seconds per step in which a worker only sends, waits or reduces; the mean over workers."""
    alone_seconds: float
    """Seconds of all messages of a step without computation."""
    between_seconds: float
    """Part of `exposed_seconds` and `alone_seconds` that is between steps; the mean over steps."""
    messages: tuple[MessageWait, ...]
    """Messages as rank 0 measures them."""

    @property
    def exposed_share(self) -> float:
        """Exposed communication as a fraction of the step."""
        return self.exposed_seconds / self.step_seconds

    @property
    def hidden_share(self) -> float:
        """Hidden communication as a fraction of all communication."""
        return max(0.0, 1 - self.exposed_seconds / self.alone_seconds) if self.alone_seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """The measurements as plain data."""
        messages = [{"name": message.name, "holds": message.contents, "bytes": message.bytes,
                     "started_seconds": message.started_seconds, "exposed_seconds": message.exposed_seconds}
                    for message in self.messages]  # fmt: skip
        return {
            **asdict(self), "messages": messages, "exposed_share": self.exposed_share,
            "hidden_share": self.hidden_share,
        }  # fmt: skip


def time_workers(spec: NetSpec | TrainSpec, batch_size: int, device: str, steps: int | None) -> Timing:
    """Time the step of a worker, and how much of its communication is hidden. All workers call this.

    Raises `InputError` if the strategy communicates outside of the step's programs.
    """
    session = session_of(spec, world())
    if not session.alone and session.strategy.servers_among(session.world_group.size):
        raise InputError(
            "a parameter server communicates after the step, so no communication is hidden",
            location=session.strategy.where(), expected="a different strategy",
            hint="`netspec plan --workers` prints the number of bytes",
        )  # fmt: skip
    if session.shards is not None:
        raise InputError(
            "`deterministic` steps sum gradients after the backward pass, so no communication is hidden",
            location=session.strategy.where("deterministic"), expected="`deterministic: false`",
        )  # fmt: skip
    session.use_own_cores()
    began = perf_counter()
    compiler = compiler_of(spec, device, session)
    first, end = session.share.of(0, batch_size)
    overlap: list[Overlap] = []

    def measure(parts: Sequence[Part], steps: int | None) -> tuple[list[float], list[Runs]]:
        step_seconds, by_node, measured = measure_overlap(compiler, session, parts, steps)
        overlap.append(measured)
        return step_seconds, by_node

    timing = time_compiled(
        compiler, end - first, steps, began, measure=measure, workers=session.workers.size, all_samples=batch_size
    )
    return replace(timing, communication=overlap[0])


def measure_overlap(
    compiler: Compiler, session: WorkerSession, parts: Sequence[Part], steps: int | None
) -> tuple[list[float], list[Runs], Overlap]:
    """Time steps with communication, without it, and communication alone, in turn. All workers call this.

    Also returns seconds of complete steps, and of steps node by node, so that a report has one time of a step.
    """
    group = session.workers
    alone = [(program.only(communicates), times) for program, _, times in parts]
    meeting = next((step for step in range(1, MEETINGS) if session.strategy.synchronizes_at(step)), None)

    def messages() -> None:
        for run, times in alone:
            for _ in range(times):
                run()

    def together(act: Callable[[], object]) -> float:
        group.barrier()
        began = perf_counter()
        act()
        return perf_counter() - began

    steps = warm_up(parts, steps)
    seconds_by_kind: dict[str, list[float]] = {"whole": [], "silent": [], "alone": [], "between": []}
    by_node: list[Runs] = [[] for _ in parts]
    for _ in range(steps):
        seconds_by_kind["whole"].append(together(lambda: run_step(parts)))
        with group.silence():
            seconds_by_kind["silent"].append(together(lambda: run_step(parts)))
        group.barrier()
        for (program, write, _), runs in zip(parts, by_node, strict=True):
            write()
            runs.append(program.timed())
        seconds_by_kind["alone"].append(together(messages))
        if meeting is not None and not session.joint_steps:
            seconds_by_kind["between"].append(together(lambda: session.after_step(meeting, compiler)) / meeting)
    cluster = uniform_cluster(group.size, group.host_size)
    waits = [
        wait
        for (program, _, times), runs in zip(parts, by_node, strict=True)
        for wait in _waits(
            program, runs, times, [message.name for message in program_messages([(program.plan.order, 1)], cluster)]
        )
    ]
    between = median(seconds_by_kind["between"]) if seconds_by_kind["between"] else 0.0
    waited = sum(message.exposed_seconds for message in waits) + between
    step_seconds = [seconds + between for seconds in seconds_by_kind["whole"]]
    overlap = Overlap(
        session.strategy.strategy, group.size, steps, median(step_seconds), median(seconds_by_kind["silent"]),
        fmean(group.all_gather_objects(waited)), median(seconds_by_kind["alone"]) + between, between, tuple(waits),
    )  # fmt: skip
    return step_seconds, by_node, overlap


def communicates(node: Node) -> bool:
    """Whether an op sends to or waits for other workers."""
    return isinstance(node.op, CommunicationOp)


def exposed(seconds_by_node: Mapping[Node, float]) -> float:
    """Seconds of a run in which the worker only communicates: sends, waits or reduces."""
    return sum(seconds for node, seconds in seconds_by_node.items() if communicates(node))


def medians(runs: Runs) -> dict[Node, float]:
    """Median seconds of each node."""
    medians_by_node = {}
    for calls in zip(*runs, strict=True):
        if calls[0][0] is not None:
            medians_by_node[calls[0][0]] = median(seconds for _, seconds in calls)
    return medians_by_node


def _waits(program: Program, runs: Runs, times: int, names: Sequence[str]) -> list[MessageWait]:
    """Return the cost of each message of a program in a step that runs the program `times` times."""
    seconds_by_node, waits, at, began = medians(runs), list[MessageWait](), 0.0, dict[Node, float]()
    for node, seconds in seconds_by_node.items():
        began[node] = at
        at += seconds
    senders = [node for node in program.plan.order if communicates(node) and _carried(node)]
    for node, name in zip(senders, names, strict=True):
        ends = [
            other_node
            for other_node in seconds_by_node
            if communicates(other_node) and any(value.node is node for value in other_node.inputs)
        ]
        duration = seconds_by_node[node] + sum(seconds_by_node[end] for end in ends if end not in senders)
        holds, nbytes = _op(node).contents, message_bytes(_op(node), _carried(node))
        waits.append(MessageWait(name, holds, nbytes, began[node], times * duration))
    return waits


def _op(node: Node) -> CommunicationOp:
    assert isinstance(node.op, CommunicationOp)
    return node.op


def _carried(node: Node) -> Sequence[TensorType]:
    return _op(node).sent_types([value.type for value in node.inputs])
