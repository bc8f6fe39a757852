"""What the workers of a training send each other in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from netspec.compile import Purpose
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.messages import Message, of_programs
from netspec.parallel.strategies.base import Sizes, Strategy

if TYPE_CHECKING:
    from netspec.compile import Compiler


def sizes_of(compiler: Compiler, strategy: Strategy) -> Sizes:
    """Of the states that a strategy may send between steps."""
    kinds = compiler.types(*strategy.sends).items()
    return {name: (one.shape, one.dtype.itemsize) for name, one in kinds if one.dtype.is_float}


def messages(
    compiler: Compiler, strategy: Strategy, cluster: Cluster, rows: int, batches: int, stage: int | None = None
) -> Sequence[Message]:
    """Those of a step of so many batches, of which a worker has so many rows each, as it is compiled for a stage."""
    update = [compiler.plan(Purpose.UPDATE, 1, stage)] if compiler.updates else []
    programs = [(compiler.plan(compiler.of_batch, rows, stage).order, batches), *((one.order, 1) for one in update)]
    return [*of_programs(programs, cluster), *strategy.messages(sizes_of(compiler, strategy), cluster)]
