"""What one of several workers of a training allocates, before there are any."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from netspec.cli.output import STATES, count, size
from netspec.cli.sending import Imagined, compiler_of, crew_of
from netspec.compile import Purpose
from netspec.errors import RunError
from netspec.graph.kernel import NoKernelError
from netspec.graph.plan import aligned
from netspec.parallel.strategies.pipeline import Pipeline
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec


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


def one_worker(spec: NetSpec | TrainSpec, workers: int, batch_size: int) -> OneWorker:
    """Compile the training for its strategy as each worker does, all on one host. Nothing is allocated.

    Servers are among the `workers`. Raises `InputError` where the training can't be spread over so many.
    """
    staged = isinstance(spec, TrainSpec) and isinstance(spec.parallel, Pipeline)
    ranks = range(workers) if staged else (0,)  # else they are alike, but for a few numbers of what is divided
    return max((_of_rank(spec, workers, rank, batch_size) for rank in ranks), key=lambda one: one.nbytes)


def _of_rank(spec: NetSpec | TrainSpec, workers: int, rank: int, batch_size: int) -> OneWorker:
    crew = crew_of(spec, Imagined(workers, workers, rank))
    compiler = compiler_of(spec, "null", crew)
    samples = -(-batch_size // crew.size) if crew.strategy.splits_batches else batch_size
    rows = samples if crew.shards is None else -(-batch_size // crew.shards)
    try:
        plans = [compiler.plan(compiler.of_batch, rows)]
        plans += [compiler.plan(Purpose.UPDATE, 1)] if compiler.updates else []
    except NoKernelError as error:
        raise RunError(f"there is no kernel for a part of this net: {error}") from None
    states = Counter[str]()
    for one in compiler.info.values():
        states[one.role] += aligned(one.value.type.nbytes)
    memories = [one.memory for one in plans]
    own = sum(one.nbytes for one in memories)
    return OneWorker(samples, own, dict(states))
