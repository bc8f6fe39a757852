"""What one of several workers of a training allocates, before there are any."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from netspec.cli.output import STATES, count, size
from netspec.cli.sending import Imagined, compiler_of, crew_of
from netspec.compile import Compiler, Purpose
from netspec.errors import RunError
from netspec.graph.kernel import NoKernelError
from netspec.graph.plan import Plan, aligned
from netspec.parallel.strategies.pipeline import Pipeline
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec
from netspec.train.crew import Crew


@dataclass(frozen=True)
class OneWorker:
    """The memory of the first worker: of the one that needs most, where they compute different stages."""

    samples: int
    """Of a batch, at most."""
    programs_bytes: int
    """Of the programs of training steps, beside the states."""
    states_bytes: dict[str, int]
    """By role, as `netspec plan` names them."""

    @property
    def nbytes(self) -> int:
        """In all."""
        return self.programs_bytes + sum(self.states_bytes.values())

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**asdict(self), "bytes": self.nbytes}

    def show(self) -> None:
        """Print it."""
        parts = [f"{STATES.get(role, role)} {size(nbytes)}" for role, nbytes in self.states_bytes.items() if nbytes]
        print(
            f"a worker has {count(self.samples)} samples of a batch, and allocates {size(self.nbytes)} for a training "
            f"step; states of that: {', '.join(parts) or 'none'}"
        )


@dataclass(frozen=True)
class Compiled:
    """The programs of one of several workers."""

    crew: Crew
    compiler: Compiler
    samples: int
    """Of a batch, at most."""
    programs: list[tuple[Plan, int]]
    """Those of a step, each with how often it runs."""

    def memory(self) -> OneWorker:
        """What it allocates."""
        states = Counter[str]()
        for one in self.compiler.info.values():
            states[one.role] += aligned(one.value.type.nbytes)
        return OneWorker(self.samples, sum(plan.memory.nbytes for plan, _ in self.programs), dict(states))


def one_worker(spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null") -> OneWorker:
    """What `each_kind` finds of the one that needs most memory."""
    return max((one.memory() for one in each_kind(spec, workers, batch_size, device)), key=lambda one: one.nbytes)


def each_kind(
    spec: NetSpec | TrainSpec, workers: int, batch_size: int, device: str = "null", per_host: int | None = None
) -> list[Compiled]:
    """Compile the training for its strategy as each worker does that differs, all on one host by default.

    Nothing is allocated. Servers are among the `workers`. Raises `InputError` where the training can't be spread over
    so many.
    """
    staged = isinstance(spec, TrainSpec) and isinstance(spec.parallel, Pipeline)
    ranks = range(workers) if staged else (0,)  # else they are alike, but for a few numbers of what is divided
    return [_of_rank(spec, Imagined(workers, per_host or workers, rank), batch_size, device) for rank in ranks]


def _of_rank(spec: NetSpec | TrainSpec, workers: Imagined, batch_size: int, device: str) -> Compiled:
    crew = crew_of(spec, workers)
    compiler = compiler_of(spec, device, crew)
    samples = -(-batch_size // crew.size) if crew.strategy.splits_batches else batch_size
    rows, times = samples, spec.train.accumulate if isinstance(spec, TrainSpec) else 1
    if crew.shards is not None:
        rows, times = -(-batch_size // crew.shards), times * -(-crew.shards // crew.size)
    try:
        plans = [(compiler.plan(compiler.of_batch, rows), times)]
        plans += [(compiler.plan(Purpose.UPDATE, 1), 1)] if compiler.updates else []
    except NoKernelError as error:
        raise RunError(f"there is no kernel for a part of this net: {error}") from None
    return Compiled(crew, compiler, samples, plans)
