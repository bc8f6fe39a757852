"""`profile`: a trace of training steps and an evaluation for Perfetto, and a summary of where steps spend time."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from threading import Thread, current_thread
from time import perf_counter
from typing import Any

from netspec.backends.device import Device
from netspec.backends.process_group import world
from netspec.backends.program import NonFiniteLoss, Program
from netspec.compile import Compiler, ProgramKind
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import InputError, RunError
from netspec.exchange.files import write_atomically
from netspec.graph.fused import node_scopes
from netspec.graph.value import Node
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.train import TrainSpec
from netspec.tools.bounds import require_at_least
from netspec.tools.measuring.timing import PHASES, node_work, stored_types
from netspec.tools.short_training import load_short_training
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.diagnostics.call_record import CallRecord, ProgramCall
from netspec.training.evaluation import open_evaluation_loader
from netspec.training.events import data_name
from netspec.training.progress import Progress
from netspec.training.resume import StartingPoint
from netspec.training.run import set_first_values
from netspec.training.session import Session, open_session
from netspec.training.stepper import run_steps, scheduled_rates

STEPS, WARMUP = 10, 5
"""Default numbers of recorded steps, and of steps before them. Loaders start threads after three slow batches."""
SUFFIXES = (".json", ".json.gz")
"""Suffixes of traces."""
TRAINING = "training"
"""Track of the thread that trains."""
STEP, EVALUATION, TEST, DATA = "step", "evaluation", "test", "data"
BATCH, COPY, COMPILE, WAIT, BETWEEN = "batch", "copy", "compile", "wait", "exchange"
PARTS = {
    BATCH: "next batch",
    COPY: "copying inputs",
    **{phase: phase for phase in PHASES},
    WAIT: "waiting for the device",
    BETWEEN: "exchange between steps",
    COMPILE: "compiling",
}
"""Titles of the parts of a step, by category of events; these events do not overlap."""
OTHER = "other"


@dataclass(frozen=True)
class TraceEvent:
    """Something that took time."""

    name: str
    category: str
    """`step`, `evaluation`, `test` (a batch of an evaluation), `program`, `data` (reading and transforming samples), or
    one of `PARTS`."""
    track: str
    """The thread or the device that did it."""
    start: float
    """Seconds since the first recorded step began."""
    seconds: float
    rank: int = 0
    """The worker."""
    arguments: Mapping[str, Any] | None = None
    """Layer, kernel, shapes, FLOP and bytes of an operation."""


@dataclass(frozen=True)
class OperationTotal:
    """All calls of an operation of a layer."""

    op: str
    layer: str
    phase: str
    kernel: str
    calls: int
    seconds: float
    """Seconds per step."""


@dataclass(frozen=True)
class Profile:
    """The events of some training steps, and summaries of those of rank 0."""

    name: str
    device: str
    precision: str
    batch_size: int
    """Samples of a batch of all workers."""
    steps: int
    workers: int
    queue: str | None
    """Track of the operations; None if they run in the thread that trains."""
    events: tuple[TraceEvent, ...]
    """Events of the training steps."""
    evaluation: tuple[TraceEvent, ...] = ()
    """Events of the evaluation that follows the steps; empty without data to evaluate on."""
    evaluated_data: str | None = None
    """Name of the data of the evaluation, such as "validation data"; None without an evaluation."""

    @property
    def evaluation_seconds(self) -> float | None:
        """Mean time of a batch of the evaluation, without loading it; None without an evaluation."""
        seconds = [event.seconds for event in self.evaluation if event.rank == 0 and event.category == TEST]
        return fmean(seconds) if seconds else None

    @property
    def step_seconds(self) -> float:
        """Mean time of a step, including the loading of its batches."""
        return fmean(event.seconds for event in self._first() if event.category == STEP)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds per step of each of `PARTS`, and of the rest: calls between operations."""
        seconds = dict.fromkeys(PARTS, 0.0)
        for event in self._first():
            if event.category in PARTS:
                seconds[event.category] += event.seconds / self.steps
        if self.queue is not None:  # the time that the thread waits for the device is the time of the operations
            seconds[WAIT] = 0.0
        seconds[OTHER] = max(0.0, self.step_seconds - sum(seconds.values()))
        return seconds

    @property
    def operations(self) -> list[OperationTotal]:
        """The operations in descending order of their time."""
        groups: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
        for event in self._first():
            if event.category in PHASES:
                facts = event.arguments or {}
                key = event.name, facts.get("layer", ""), event.category, facts.get("kernel", "")
                groups[key].append(event.seconds)
        totals = [
            OperationTotal(op, layer, phase, kernel, len(calls), sum(calls) / self.steps)
            for (op, layer, phase, kernel), calls in groups.items()
        ]
        return sorted(totals, key=lambda total: -total.seconds)

    @property
    def data_seconds(self) -> dict[str, float]:
        """Seconds per step of reading samples and of each transform, in all threads."""
        seconds: dict[str, float] = defaultdict(float)
        for event in self._first():
            if event.category == DATA:
                seconds[event.name] += event.seconds / self.steps
        return dict(seconds)

    @property
    def data_threads(self) -> list[str]:
        """The threads that read and transform samples."""
        return sorted({event.track for event in self._first() if event.category == DATA})

    @property
    def loads_ahead(self) -> bool:
        """Whether other threads than the one that trains prepare all batches."""
        return bool(self.data_threads) and TRAINING not in self.data_threads

    @property
    def waits(self) -> dict[str, float]:
        """Shares of a step that it spends on getting batches, and with several workers on communication."""
        parts = self.parts
        shares = {"batches": parts[BATCH] / self.step_seconds}
        if self.workers > 1:
            shares["other workers"] = (parts["communication"] + parts[BETWEEN]) / self.step_seconds
        return shares

    def _first(self) -> Iterator[TraceEvent]:
        return (event for event in self.events if event.rank == 0)

    def as_trace(self) -> dict[str, Any]:
        """The events in Chrome's Trace Event Format: a process for each worker, and a track for each thread."""
        events = (*self.events, *self.evaluation)
        used = {(event.rank, event.track) for event in events}
        order = sorted(used, key=lambda place: (place[0], place[1] != TRAINING, place[1]))
        tracks = {place: number for number, place in enumerate(order)}
        records: list[dict[str, Any]] = []
        for rank in range(self.workers):
            title = f"{self.name}, rank {rank}" if self.workers > 1 else self.name
            records.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": title}})
            records.append({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
        for (rank, track), number in tracks.items():
            place = {"ph": "M", "pid": rank, "tid": number}
            records.append({**place, "name": "thread_name", "args": {"name": track}})
            records.append({**place, "name": "thread_sort_index", "args": {"sort_index": number}})
        # Viewers nest events of the same start in the order of the file: the longer one is the outer one.
        records += [
            {
                "ph": "X", "name": event.name, "cat": event.category, "pid": event.rank,
                "tid": tracks[event.rank, event.track], "ts": round(1e6 * event.start, 3),
                "dur": round(1e6 * event.seconds, 3), "args": dict(event.arguments or {}),
            }
            for event in sorted(events, key=lambda event: (event.start, -event.seconds))
        ]  # fmt: skip
        facts = {name: value for name, value in self.as_json().items() if isinstance(value, (str, int, float))}
        return {"traceEvents": records, "displayTimeUnit": "ms", "otherData": facts}

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON, compressed if the name ends in `.gz`. Raises `InputError` for another suffix."""
        check_trace_name(path)
        data = json.dumps(self.as_trace(), separators=(",", ":")).encode()
        if str(path).lower().endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        write_atomically(path, lambda temporary: temporary.write_bytes(data))

    def as_json(self) -> dict[str, Any]:
        """The summary as plain data, without the events."""
        return {
            "name": self.name, "device": self.device, "precision": self.precision, "batch_size": self.batch_size,
            "steps": self.steps, "workers": self.workers, "step_seconds": self.step_seconds, "parts": self.parts,
            "waits": self.waits, "data_seconds": self.data_seconds, "data_threads": self.data_threads,
            "operations": [asdict(total) for total in self.operations],
            "evaluated_data": self.evaluated_data, "evaluation_seconds": self.evaluation_seconds,
            "events": len(self.events) + len(self.evaluation),
        }  # fmt: skip


def check_trace_name(path: str | Path) -> None:
    """Raise `InputError` if a file name does not end in one of `SUFFIXES`."""
    if not str(path).lower().endswith(SUFFIXES):
        raise InputError(
            "a trace is written as JSON", expected="a file name that ends in .json or .json.gz", got=str(path)
        )


def profile(
    source: Source,
    *,
    overrides: Overrides = (),
    output: str | Path | None = None,
    steps: int = STEPS,
    warmup: int = WARMUP,
    samples: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> Profile:
    """Record `steps` training steps after `warmup` others: operations, data loading by thread, and communication.

    `source` is a training file or a run directory; the training starts from its initial weights, and nothing is
    written but `output`: a trace for https://ui.perfetto.dev and chrome://tracing, `.json` or `.json.gz`. An evaluation
    of at most `steps` batches of the monitored data follows the steps; summaries are of the steps alone. Callbacks and
    checkpoints are left out. On a GPU, kernels are started one by one instead of as a CUDA graph, and
    timed by CUDA events.

    To profile several workers, start the script by `mpiexec -n 4 python script.py`, or run
    `netspec profile --workers 4`: every worker calls this function, and gets the events of all.

    Raises `InputError` if the spec, the data or an argument is wrong, `RunError` if a step fails.

        >>> netspec.profile("train.yaml", output="trace.json").parts["batch"]
    """
    require_at_least(1, {"the number of steps": steps})
    require_at_least(0, {"the number of warm-up steps": warmup})
    if output is not None:
        check_trace_name(output)
    spec, _ = load_short_training(source, overrides, samples)
    with open_session(spec) as session:
        if not session.alone and world().size > session.size:
            raise InputError(
                "a parameter server's updates are not part of a step, so they cannot be profiled",
                expected="a different strategy", hint="`netspec plan --workers` prints the number of bytes",
            )  # fmt: skip
        compiler = training_compiler(spec, device, session)
        with open_training_loader(spec, compiler, session) as loader:
            recorder = Recorder(compiler.device)
            loader.record_times(recorder.add_data)
            training = _ProfiledTraining(spec, session, compiler, loader, recorder)
            training.initialize()
            recorded = training.record(steps, warmup)
        step_events, evaluation_events = (_gather_events(session, events) for events in recorded)
    result = Profile(
        name=spec.name or spec.net.name, device=compiler.device.name, precision=str(compiler.precision),
        batch_size=spec.data.train.batch_size, steps=steps, workers=session.size, queue=recorder.queue,
        events=step_events, evaluation=evaluation_events,
        evaluated_data=data_name(spec.data.monitored) if evaluation_events else None,
    )  # fmt: skip
    if output is not None and session.is_root:
        result.save(output)
    return result


def _gather_events(session: Session, events: Sequence[TraceEvent]) -> tuple[TraceEvent, ...]:
    """Return the events of all workers, each with its rank. Collective."""
    gathered = session.gather([asdict(event) for event in events])
    return tuple(replace(TraceEvent(**event), rank=rank) for rank, own in enumerate(gathered) for event in own)


@dataclass(frozen=True)
class _ProfiledTraining:
    """A training of one or several workers, whose events are recorded."""

    spec: TrainSpec
    session: Session
    compiler: Compiler
    loader: Loader
    recorder: Recorder

    def initialize(self) -> None:
        """Give the states of all workers their first values."""
        self.session.layout(self.compiler)
        start = StartingPoint(Progress())
        if self.session.is_root:
            set_first_values(self.spec, self.compiler, self.loader, start, None)
        self.session.align(self.compiler, self.loader, start)

    def record(self, steps: int, warmup: int) -> tuple[list[TraceEvent], list[TraceEvent]]:
        """Train, then evaluate; return the events of the steps after the first `warmup`, and of the evaluation."""
        session, recorder = self.session, self.recorder
        stepper, calls = session.stepper(self.spec, self.compiler, self.loader), RecordedCalls(self.compiler, recorder)
        stepper.calls = calls
        rates, zero = scheduled_rates(self.spec, warmup + steps), 0.0
        steps_run = run_steps(stepper, self._timed(iter(self.loader)), lambda step: session.scheduled(rates(step)))
        for step in range(warmup + steps):
            if step == warmup:
                session.barrier()  # the clocks of the workers are aligned here
                zero = perf_counter()
            with recorder.span(f"step {step + 1}", STEP):
                try:
                    _, loss = next(steps_run)
                    with recorder.span("wait for the loss", WAIT):
                        loss()
                        self.compiler.device.wait()
                except NonFiniteLoss:
                    raise _not_finite(step) from None
                if session.size > 1:
                    with recorder.span("exchange after the step", BETWEEN):
                        session.after_step(step + 1, self.compiler)
            recorder.take_calls()
        self._evaluate(calls, steps)
        return recorder.events_of(STEP, zero), recorder.events_of(EVALUATION, zero)

    def _evaluate(self, calls: RecordedCalls, most: int) -> None:
        """Evaluate up to `most` batches of the data that the training monitors; each of several workers, its own."""
        split, recorder = self.spec.data.monitored, self.recorder
        if split not in self.spec.data.splits():
            return
        with (
            open_evaluation_loader(self.spec, split, self.compiler, self.loader.learned, self.session) as evaluated,
            self.session.synchronized_view(self.compiler),
        ):
            evaluated.record_times(recorder.add_data)
            for rows in {min(evaluated.batch_size, evaluated.samples), evaluated.samples % evaluated.batch_size} - {0}:
                recorder.attach(self.compiler.program(ProgramKind.TEST, rows))  # compiles it
            with recorder.span(f"evaluation of {data_name(split)}", EVALUATION):
                for number, batch in enumerate(islice(self._timed(evaluated.one_pass()), most), 1):
                    with recorder.span(f"test step {number}", TEST, {"samples": len(batch)}):
                        program = calls.run(ProgramCall(ProgramKind.TEST, batch.rows, None, None, batch.inputs, 0))
                        with recorder.span("wait for the results", WAIT):
                            program.read()
                    recorder.take_calls()

    def _timed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches, and record how long the thread waits for each."""
        while True:
            with self.recorder.span("next batch", BATCH):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _not_finite(step: int) -> RunError:
    return RunError(
        f"the loss or a gradient is not finite at step {step + 1}", hint="`netspec train` names the first operation"
    )


class Recorder:
    """Collects events of all threads, and the calls of programs."""

    def __init__(self, device: Device) -> None:
        self._thread = current_thread()
        self._timer = device.call_timer()
        self.queue = self._timer.track
        """Track of the calls; None if they run in the thread that trains."""
        self._events: list[TraceEvent] = []  # in seconds of `perf_counter`
        # The keys are threads, since Python reuses the identifiers of threads that have ended.
        self._tracks: dict[Thread, str] = {}
        """Track of each other thread: its name, with a number if another thread has the same."""
        self._nodes: dict[Node, tuple[str, str, dict[str, Any]]] = {}
        self._programs: set[Program] = set()

    def add(
        self, name: str, category: str, start: float, end: float, arguments: Mapping[str, Any] | None = None,
        track: str | None = None,
    ) -> None:  # fmt: skip
        """Add an event of a track, by default of this thread."""
        if track is None:
            track = TRAINING if current_thread() is self._thread else self._track_of_thread()
        self._events.append(TraceEvent(name, category, track, start, end - start, arguments=arguments))

    def add_data(self, name: str, start: float, end: float) -> None:
        """Add a read or a transform of samples by this thread."""
        self.add(name, DATA, start, end)

    def _track_of_thread(self) -> str:
        """Return the track of this thread: its name, with a number if another loader has a thread of the same name."""
        thread = current_thread()
        if thread not in self._tracks:
            name = thread.name
            same = sum(track == name or track.startswith(f"{name} (") for track in list(self._tracks.values()))
            self._tracks[thread] = f"{name} ({same + 1})" if same else name
        return self._tracks[thread]

    @contextmanager
    def span(self, name: str, category: str, arguments: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Add an event that is as long as the block."""
        start = perf_counter()
        yield
        self.add(name, category, start, perf_counter(), arguments)

    def attach(self, program: Program) -> bool:
        """Record the calls of a program from now on; return whether it was not recorded before."""
        if program in self._programs:
            return False
        self._programs.add(program)
        program.profile(self._timer)
        self._nodes |= {node: _described(program, node) for node in program.plan.choices}
        return True

    def take_calls(self) -> None:
        """Add the program calls since the previous `take_calls`. Waits for the device."""
        for node, start, end in self._timer.take():
            name, phase, facts = ("copy of a state", "update", {}) if node is None else self._nodes[node]
            self.add(name, phase, start, end, facts, self.queue)

    def events_of(self, category: str, zero: float) -> list[TraceEvent]:
        """Return all events from the first to the last of a category after `zero`, in seconds since then."""
        bounds = [event for event in self._events if event.category == category and event.start >= zero]
        begin = min((event.start for event in bounds), default=zero)
        end = max((event.start + event.seconds for event in bounds), default=zero)
        return [
            replace(event, start=event.start - zero)
            for event in self._events if begin <= event.start and event.start + event.seconds <= end
        ]  # fmt: skip


def _described(program: Program, node: Node) -> tuple[str, str, dict[str, Any]]:
    """Return name, phase and facts of a node."""
    flops, nbytes = node_work(program, node)
    facts = {
        "layer": node.scope.layer, "layers": [scope.layer for scope in node_scopes(node)],
        "kernel": program.plan.choices[node].label, "inputs": list(stored_types(program, node.inputs)),
        "outputs": list(stored_types(program, node.outputs)), "flop": flops, "bytes": nbytes,
    }  # fmt: skip
    return node.op.name, node.scope.phase, facts


class RecordedCalls(CallRecord):
    """Runs the programs of a stepper, and records what they do."""

    def __init__(self, compiler: Compiler, recorder: Recorder) -> None:
        super().__init__(compiler, unknown_reason="the training is profiled")
        self._recorder = recorder

    def run(self, call: ProgramCall) -> Program:
        """Run a call."""
        began = perf_counter()
        program = call.program(self._compiler)
        if self._recorder.attach(program):
            self._recorder.add(f"compile {call.kind} of {call.rows}", COMPILE, began, perf_counter())
        self._calls.append(call)
        with self._recorder.span("copy inputs", COPY):
            program.write(call.inputs)
        with self._recorder.span(f"{call.kind} program", "program"):
            program.run()
        return program
