"""Messages that the workers of a training send each other in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from netspec.compile import ProgramKind, scheduled_inputs
from netspec.distributed.cost_model.collectives import Exchange
from netspec.distributed.cost_model.comm_volume import Message, of_programs
from netspec.distributed.cost_model.networks import Cluster
from netspec.distributed.plans import PipelinePlan
from netspec.distributed.strategies.base import Sizes, Strategy
from netspec.distributed.strategies.pipeline import stage_role

if TYPE_CHECKING:
    from netspec.compile import Compiler
    from netspec.data.loader import Loader


def state_sizes(compiler: Compiler, strategy: Strategy) -> Sizes:
    """Return shape and element size of the states that a strategy may send between steps."""
    kinds = compiler.types(*strategy.sends).items()
    return {name: (one.shape, one.dtype.itemsize) for name, one in kinds if one.dtype.is_float}


Batches: TypeAlias = Sequence[tuple[int, int]]
"""For each batch of a step: the number of this worker's rows, and the number of samples of all workers."""


@dataclass(frozen=True)
class EpochBatches:
    """Batches that the steps of an epoch read."""

    usual: Batches
    """Batches of each step except the last."""
    last: Batches
    """Batches of the last step, which may be fewer."""
    steps: int

    @classmethod
    def of(cls, loader: Loader, accumulate: int) -> EpochBatches:
        """Divide an epoch of `loader` into steps of `accumulate` batches."""
        full, rest = divmod(loader.samples, loader.batch_size)
        batches = [(loader.batch_sizes[0], loader.batch_size)] * full + [(loader.batch_sizes[-1], rest)] * bool(rest)
        steps = -(-len(batches) // accumulate)
        return cls(batches[:accumulate], batches[(steps - 1) * accumulate :], steps)


def step_messages(
    compiler: Compiler, strategy: Strategy, cluster: Cluster, batches: Batches, stage: int | None = None
) -> Sequence[Message]:
    """Return the messages of a step that reads these batches, compiled for a pipeline stage."""
    update = [compiler.plan(ProgramKind.UPDATE, 1, stage)] if compiler.updates else []
    programs = [
        (compiler.plan(compiler.batch_program, rows, stage, whole).order, times)
        for (rows, whole), times in Counter(batches).items()
    ]
    programs += [(one.order, 1) for one in update]
    found = [*of_programs(programs, cluster), *strategy_messages(compiler, strategy, cluster, len(batches))]
    pipeline = compiler.distribution
    if not isinstance(pipeline, PipelinePlan):
        return found
    ((rows, _),) = batches  # a pipeline's step has one
    return [*_between_stages(pipeline, cluster, rows), *(_by_stage(one, cluster.ranks) for one in found)]


def strategy_messages(compiler: Compiler, strategy: Strategy, cluster: Cluster, batches: int) -> Iterator[Message]:
    """Yield the messages of a step of `batches` batches that are sent outside of its programs."""
    rates = len(scheduled_inputs(compiler.solver)) if compiler.solver is not None else 0
    return strategy.messages(state_sizes(compiler, strategy), cluster, batches, rates)


def _between_stages(pipeline: PipelinePlan, cluster: Cluster, rows: int) -> Iterator[Message]:
    """Yield the messages between pipeline stages: values forward, and their gradients backward."""
    for samples, times in Counter(pipeline.config.sizes(rows)).items():
        for one in pipeline.stages_of(samples).crossings:
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
