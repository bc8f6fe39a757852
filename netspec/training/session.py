"""`Session`, through which a training communicates with its other workers; the base class serves a single worker.

The training loop talks to other workers only through a session. With several workers it is a `WorkerSession` of
`netspec.distributed.session`; `open_session` chooses between the two. Unless a docstring says otherwise, a method is
collective: all workers call it at the same point of the training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from netspec.backends.launcher_env import is_launched_job
from netspec.backends.process_group import world
from netspec.data.sharding import Share
from netspec.errors import Location, RunError
from netspec.training.diagnostics.call_record import CallRecord
from netspec.training.stepper import Stepper

if TYPE_CHECKING:
    from netspec.backends.device import Device
    from netspec.compile import Compiler
    from netspec.compile.distributed_plan import DistributedPlan
    from netspec.data.loader import Loader
    from netspec.graph.types import TensorType
    from netspec.schema.specs.train import TrainSpec
    from netspec.training.progress import Progress
    from netspec.training.resume import StartingPoint
    from netspec.training.signals import Signals


@dataclass
class StopVote:
    """A vote on stopping and on writing a checkpoint; the base class holds the requests of one worker."""

    signals: Signals

    @property
    def stop(self) -> bool:
        """True if all workers stop after this step."""
        return self.signals.stop is not None

    @property
    def snapshot(self) -> bool:
        """True if all workers write a checkpoint after this step."""
        return self.signals.snapshot


class ShardedStateInfo(Protocol):
    """A state that no worker, or not every worker, holds in full."""

    @property
    def name(self) -> str:
        """Name of the state."""
        ...

    @property
    def role(self) -> str:
        """Role of the state: `parameter`, `slot`, …"""
        ...

    @property
    def kind(self) -> TensorType:
        """Type of the full state."""
        ...


@dataclass(frozen=True)
class StateLayout:
    """States that each worker holds in full, and states that are sharded. It is the same on all workers."""

    replicated: Sequence[str]
    """Names of the states that every worker holds in full."""
    sharded: Mapping[str, ShardedStateInfo] = field(default_factory=dict)
    """The other states that checkpoints hold, by name."""

    @property
    def roles(self) -> dict[str, str]:
        """Roles of the sharded states, by name."""
        return {name: state.role for name, state in self.sharded.items()}

    @property
    def kinds(self) -> dict[str, TensorType]:
        """Types of the full sharded states, by name."""
        return {name: state.kind for name, state in self.sharded.items()}


@dataclass(frozen=True)
class GatheredStates:
    """States of other workers that a checkpoint holds. Both are empty on all workers but the root."""

    full: Mapping[str, Any] = field(default_factory=dict)
    """The full arrays of sharded states, by name."""
    by_worker: Sequence[Mapping[str, Any]] = ()
    """For each further worker, the states of which every worker has values of its own, by name."""


@dataclass(frozen=True)
class NonFiniteOrigin:
    """The source of a loss that is not finite."""

    description: str
    """The layer or state, as text."""
    location: Location | None
    is_known: bool
    """True if it is a certain node or state; False if this worker's part of the loss was finite."""
    is_own: bool = True
    """Whether it is on this worker."""


class Session:
    """One training, as one of its workers sees it. The base class has one worker, which sends nothing."""

    rank: int = 0
    """Index of this worker, from 0."""
    size: int = 1
    """Number of workers that train; parameter servers are not counted."""
    is_root: bool = True
    """True on the worker that writes files and prints."""
    is_server: bool = False
    """True if this process holds parameters for the workers and does not train."""
    share: Share = Share()
    """This worker's share of an evaluation."""
    training_share: Share = Share()
    """This worker's share of the training batches."""
    alone: bool = True
    """True if no other process takes part, as a worker or as a parameter server."""
    joint_steps: bool = False
    """True if several workers compute every step together, so that all of them fail in the same step."""
    own_roles: Sequence[str] = ()
    """Roles of the states of which every worker has values of its own."""

    @property
    def losses_differ(self) -> bool:
        """True if each worker knows only the losses of its own samples, not those of all workers."""
        return False

    @property
    def description(self) -> str:
        """Strategy of the workers, for messages: `one worker`, `all_reduce`."""
        return "one worker"

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON data of every worker, in the order of ranks."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """Return the JSON data of the root, on every process of the training."""
        return value

    def broadcast_arrays(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the root's arrays, on every worker. All workers pass arrays of the same names, shapes and types."""
        return arrays

    def barrier(self) -> None:
        """Wait for all workers."""

    def gather_batches(self, results: Iterator[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], ...]]:
        """Yield the next result of every worker, in the order of ranks, until no worker has one."""
        return ((result,) for result in results)

    def vote_on_stop(self, signals: Signals, step: int) -> StopVote:
        """Start a vote whose result is known after the step `step`, counted from 1."""
        return StopVote(signals)

    def host_only_reason(self) -> str | None:
        """Return why the workers can't compute on GPUs; None if they can. Not collective."""
        return None

    def plan(self, spec: TrainSpec, device: Device) -> DistributedPlan | None:
        """Return how the compiler spreads the training over the workers; None for one worker.

        Raises `InputError` if the workers can't compute on this device. Not collective.
        """
        return None

    def stepper(self, spec: TrainSpec, compiler: Compiler, loader: Loader) -> Stepper:
        """Return the object that runs this worker's training steps. Not collective."""
        return Stepper(spec, compiler, loader, calls=CallRecord(compiler))

    def scheduled(self, rates: Mapping[str, float]) -> Mapping[str, float]:
        """Return the scheduled values of this worker's update, given the values of the training. Not collective."""
        return rates

    def sends_states(self, step: int) -> bool:
        """Return whether `after_step` sends states of this worker after the step `step`. Not collective."""
        return False

    def after_step(self, step: int, compiler: Compiler) -> None:
        """Exchange states with other workers after the step `step`, counted from 1, as the strategy requires."""

    def layout(self, compiler: Compiler) -> StateLayout:
        """Return which states are sharded. Collective in the first call only."""
        return StateLayout(list(compiler.info))

    def align(self, compiler: Compiler, loader: Loader, start: StartingPoint) -> Progress:
        """Scatter the root's states, and return the progress and the position in the data from which all start."""
        return start.progress

    def synchronized_view(self, compiler: Compiler) -> AbstractContextManager[None]:
        """Give all workers the same full states while the block evaluates or saves them."""
        return nullcontext()

    def full_states(self, compiler: Compiler) -> Mapping[str, Any]:
        """Return the full parameters and statistics of which this worker has only a part, or none, by name."""
        return {}

    def gather_states(self, compiler: Compiler) -> GatheredStates:
        """Gather on the root the states of other workers that a checkpoint holds."""
        return GatheredStates()

    def can_save_after_failure(self, step: int, saved: int, *, unchanged: bool) -> bool:
        """Return whether the remaining workers can write a checkpoint of a step that is not saved yet.

        `step` is the last one that this worker completed, `saved` that of its last checkpoint; `unchanged` is False if
        a failed step has changed states. Raises `PeerFailure` if not all workers call this in time.
        """
        return unchanged and saved != step

    def peer_failure(self) -> RunError:
        """Wait for the job to be ended after another worker has failed; return the error to raise if it is not."""
        return RunError("another worker failed")

    def agree_on_origin(self, origin: NonFiniteOrigin) -> NonFiniteOrigin:
        """Return the source of a non-finite loss, from the first worker that knows it."""
        return origin

    def serve(self, compiler: Compiler) -> None:
        """Hold the parameters for the workers until all of them have left. Only servers call it."""

    def leave(self, value: Any = None) -> Any:
        """End the training; return the root's `value`."""
        return value

    def report_activity(self, step: int, doing: str) -> None:
        """Record the current activity of this worker, for messages about one that hangs or fails. Not collective."""

    def report_run_dir(self, folder: Path) -> None:
        """Record the run directory, for the command that resumes a failed training. Not collective."""

    def resume_options(self) -> list[str]:
        """Return the options of the command line that start as many workers again. Not collective."""
        return []

    def expect_traffic(self, compiler: Compiler, loader: Loader, accumulate: int, steps: range) -> None:
        """Compute the bytes that the workers send in each of `steps`. Not collective."""

    def remark(self) -> str | None:
        """Return a note for users about this way of training. Not collective."""
        return None

    def start_facts(self, batch_size: int) -> dict[str, Any]:
        """Return the fields about the workers in the event `start`. Not collective."""
        return {}

    def step_facts(self) -> dict[str, Any]:
        """Return the fields about the workers in the events `log` and `progress`. Not collective."""
        return {}

    def done_facts(self) -> dict[str, Any]:
        """Return the fields about the workers in the event `done`. Not collective."""
        return {}


LOCAL = Session()
"""A training with one worker."""


def gather_joint(session: Session, value: Any) -> list[Any]:
    """Gather a JSON value from all workers that share a step, by rank; `[value]` if steps are not shared.

    Collective if they are.
    """
    return session.gather(value) if session.joint_steps else [value]


@contextmanager
def open_session(spec: TrainSpec) -> Iterator[Session]:
    """Open the session of a training: of several workers if the spec has `parallel:` or several processes were started.

    This function alone chooses, and nothing else in this package imports `netspec.distributed`.
    """
    if spec.parallel is None and not is_launched_job() and world().size == 1:
        yield LOCAL
        return
    from netspec.distributed.session import open_worker_session

    with open_worker_session(spec) as session:
        yield session
