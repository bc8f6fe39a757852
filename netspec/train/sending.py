"""What the workers of a training send each other in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from netspec.compile import Purpose, rate_inputs
from netspec.parallel.costs.collectives import Exchange
from netspec.parallel.costs.networks import Cluster
from netspec.parallel.messages import Message, of_programs
from netspec.parallel.strategies.base import Sizes, Strategy
from netspec.parallel.strategies.pipeline import stage_role

if TYPE_CHECKING:
    from netspec.compile import Compiler
    from netspec.data.loader import Loader


def sizes_of(compiler: Compiler, strategy: Strategy) -> Sizes:
    """Of the states that a strategy may send between steps."""
    kinds = compiler.types(*strategy.sends).items()
    return {name: (one.shape, one.dtype.itemsize) for name, one in kinds if one.dtype.is_float}


Batches: TypeAlias = Sequence[tuple[int, int]]
"""Of each batch of a step: how many rows this worker has of it, and how many samples all have together."""


@dataclass(frozen=True)
class Epoch:
    """What steps read."""

    usual: Batches
    """Those of all but the last."""
    last: Batches
    """That may read less."""
    steps: int

    @classmethod
    def of(cls, loader: Loader, accumulate: int) -> Epoch:
        """With so many batches a step."""
        full, rest = divmod(loader.samples, loader.batch_size)
        batches = [(loader.batch_sizes[0], loader.batch_size)] * full + [(loader.batch_sizes[-1], rest)] * bool(rest)
        steps = -(-len(batches) // accumulate)
        return cls(batches[:accumulate], batches[(steps - 1) * accumulate :], steps)


def messages(
    compiler: Compiler, strategy: Strategy, cluster: Cluster, batches: Batches, stage: int | None = None
) -> Sequence[Message]:
    """Those of a step that reads these batches, as it is compiled for a stage."""
    update = [compiler.plan(Purpose.UPDATE, 1, stage)] if compiler.updates else []
    programs = [
        (compiler.plan(compiler.of_batch, rows, stage, whole).order, times)
        for (rows, whole), times in Counter(batches).items()
    ]
    programs += [(one.order, 1) for one in update]
    found = [*of_programs(programs, cluster), *beside_programs(compiler, strategy, cluster, len(batches))]
    if compiler.staged is None:
        return found
    ((rows, _),) = batches  # a pipeline's step has one
    return [*_between_stages(compiler, cluster, rows), *(_by_stage(one, cluster.ranks) for one in found)]


def beside_programs(compiler: Compiler, strategy: Strategy, cluster: Cluster, batches: int) -> Iterator[Message]:
    """Those of a step of so many batches that no program sends."""
    rates = len(rate_inputs(compiler.solver)) if compiler.solver is not None else 0
    return strategy.messages(sizes_of(compiler, strategy), cluster, batches, rates)


def _between_stages(compiler: Compiler, cluster: Cluster, rows: int) -> Iterator[Message]:
    """Values that go from stage to stage, and their gradients that come back."""
    assert compiler.staged is not None
    for samples, times in Counter(compiler.staged.sizes(rows)).items():
        for one in compiler.in_stages(samples).crossings:
            layer, nbytes = one.value.node.scope.layer, one.value.type.nbytes
            yield Message(layer, (), nbytes, (_hop(one.source, one.target, nbytes, cluster),), 0.0, times)
            if one.returns:
                back = _hop(one.target, one.source, nbytes, cluster)
                yield Message(layer, ("gradient",), nbytes, (back,), 1.0, times)


def _hop(source: int, target: int, nbytes: float, cluster: Cluster) -> Exchange:
    leaves = source // cluster.on_host != target // cluster.on_host
    return Exchange(1, nbytes, 1, float(leaves), role=stage_role(source))


def _by_stage(one: Message, stages: int) -> Message:
    """A message of all workers, as one of each stage."""
    return replace(one, exchanges=tuple(
        replace(part, senders=part.senders / stages, leave=part.leave / stages, role=stage_role(stage))
        for part in one.exchanges for stage in range(stages)
    ))  # fmt: skip
