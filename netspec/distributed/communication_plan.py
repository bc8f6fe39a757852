"""Messages that workers send each other in a training step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from netspec.compile import ProgramKind, scheduled_inputs
from netspec.distributed.cost_model.collectives import Exchange
from netspec.distributed.cost_model.comm_volume import CollectiveMessage, program_messages
from netspec.distributed.cost_model.networks import Cluster
from netspec.distributed.plans import PipelinePlan
from netspec.distributed.strategies.base import Sizes, Strategy
from netspec.distributed.strategies.pipeline import stage_role

if TYPE_CHECKING:
    from netspec.compile import Compiler
    from netspec.data.loader import Loader


def state_sizes(compiler: Compiler, strategy: Strategy) -> Sizes:
    """Return shape and element size of the states that a strategy may send between steps."""
    types = compiler.types(*strategy.sent_roles).items()
    return {name: (type_.shape, type_.dtype.itemsize) for name, type_ in types if type_.dtype.is_float}


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
        full, remainder = divmod(loader.samples, loader.batch_size)
        batches = [(loader.batch_sizes[0], loader.batch_size)] * full + [(loader.batch_sizes[-1], remainder)] * bool(
            remainder
        )
        steps = -(-len(batches) // accumulate)
        return cls(batches[:accumulate], batches[(steps - 1) * accumulate :], steps)


def step_messages(
    compiler: Compiler, strategy: Strategy, cluster: Cluster, batches: Batches, stage: int | None = None
) -> Sequence[CollectiveMessage]:
    """Return the messages of a step that reads these batches, compiled for a pipeline stage."""
    programs = [
        (compiler.plan(compiler.batch_program, rows, stage, global_batch).order, times)
        for (rows, global_batch), times in Counter(batches).items()
    ]
    if compiler.updates:
        programs.append((compiler.plan(ProgramKind.UPDATE, 1, stage).order, 1))
    messages = [*program_messages(programs, cluster), *strategy_messages(compiler, strategy, cluster, len(batches))]
    pipeline = compiler.distribution
    if not isinstance(pipeline, PipelinePlan):
        return messages
    ((rows, _),) = batches  # a step of a pipeline has one batch
    return [*_between_stages(pipeline, cluster, rows), *(_by_stage(message, cluster.ranks) for message in messages)]


def strategy_messages(
    compiler: Compiler, strategy: Strategy, cluster: Cluster, batches: int
) -> Iterator[CollectiveMessage]:
    """Yield the messages of a step of `batches` batches that are sent outside of its programs."""
    rates = len(scheduled_inputs(compiler.solver)) if compiler.solver is not None else 0
    return strategy.messages(state_sizes(compiler, strategy), cluster, batches, rates)


def _between_stages(pipeline: PipelinePlan, cluster: Cluster, rows: int) -> Iterator[CollectiveMessage]:
    """Yield the messages between pipeline stages: values forward, and their gradients backward."""
    for samples, times in Counter(pipeline.config.sizes(rows)).items():
        for crossing in pipeline.stages_of(samples).crossings:
            layer, nbytes = crossing.value.node.scope.layer, crossing.value.type.nbytes
            yield CollectiveMessage(
                layer, (), nbytes, (_hop(crossing.source, crossing.target, nbytes, cluster),), 0.0, times
            )
            if crossing.returns:
                back = _hop(crossing.target, crossing.source, nbytes, cluster)
                yield CollectiveMessage(layer, ("gradient",), nbytes, (back,), 1.0, times)


def _hop(source: int, target: int, nbytes: float, cluster: Cluster) -> Exchange:
    leaves = source // cluster.on_host != target // cluster.on_host
    return Exchange(1, nbytes, 1, float(leaves), role=stage_role(source))


def _by_stage(message: CollectiveMessage, stages: int) -> CollectiveMessage:
    """Split a message that all workers send into equal parts, one per pipeline stage."""
    return replace(message, exchanges=tuple(
        replace(part, senders=part.senders / stages, leave=part.leave / stages, role=stage_role(stage))
        for part in message.exchanges for stage in range(stages)
    ))  # fmt: skip
