"""Implementations of `DistributedPlan`: the change to the training step for each strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from netspec.compile.build import build
from netspec.compile.distributed_plan import DistributedPlan
from netspec.compile.purposes import ProcessRole
from netspec.distributed.partitioning.bucketing import BucketGradients
from netspec.distributed.partitioning.gradient_reduction import uncompressed
from netspec.distributed.partitioning.optimizer_sharding import OptimizerSharding, ShardingConfig, shard_parameters
from netspec.distributed.partitioning.pipeline.lower import PipelinedTraining
from netspec.distributed.partitioning.pipeline.partition import PipelineConfig, PipelineStages
from netspec.distributed.partitioning.sufficient_factors import choose_factors
from netspec.distributed.partitioning.tensor_parallel import SplitChoice, split_net, split_parameters
from netspec.distributed.partitioning.training_steps import (
    DataParallelTraining,
    ShardUpdateTraining,
    hypothetical_update,
    split_but_needed_in_full,
)
from netspec.errors import Problem, SpecError, listing
from netspec.graph.ops.source import State
from netspec.graph.value import in_scope
from netspec.layers.states import ConstantInitial, StateInfo

if TYPE_CHECKING:
    from netspec.compile import Compiler, NetGraph
    from netspec.compile.training import Training
    from netspec.distributed.partitioning.tensor_parallel import ParameterSplit
    from netspec.graph.ops.all_gather import SufficientFactorPlan, UsesFactors
    from netspec.graph.ops.all_reduce import CommEncoding
    from netspec.passes.base import Pass

CENTER = "center"
"""Role of the states that workers with separate weights have in common."""
GATHERED = "gathered"
"""Role of the states that hold full tensors of which each worker has a piece."""


@dataclass
class ReplicaPlan(DistributedPlan):
    """Every worker trains its own weights, or weights in shared memory, in steps that need no other worker."""

    has_center: bool = False
    """Whether the workers share a center of their weights, with which the net is evaluated."""
    shared_roles: Sequence[str] = ()

    def add_states(self, compiler: Compiler) -> None:
        """Add the center of each parameter and statistic."""
        for name, info in list(compiler.info.items()) if self.has_center else ():
            kind = info.value.type
            if kind.dtype.is_float and (info.trainable or info.role == "statistic"):
                label = f"{CENTER}/{name}"
                with in_scope(info.value.node.scope):
                    value = State(label, kind)()
                compiler.info[label] = StateInfo(value, ConstantInitial(), CENTER, initialized_from=name)
                compiler.evaluated[name] = label


@dataclass
class FixedOrderPlan(DistributedPlan):
    """Parts of a batch are computed separately; the order of adding gradients does not depend on the worker count."""

    accumulates: ClassVar[bool] = True


@dataclass
class DataParallelPlan(DistributedPlan):
    """Each step follows the mean of all workers' gradients."""

    workers: int = 1
    comm_encoding: Callable[[tuple[int, ...]], CommEncoding] = uncompressed
    """Returns the encoding of a gradient, by its shape."""
    stage_encodings: Sequence[Callable[[tuple[int, ...]], CommEncoding]] = ()
    """Like `comm_encoding`, for each stage of a training run before the last one."""
    buckets: BucketGradients = field(default_factory=BucketGradients)

    def training(self, training: Training, encoding_stage: int | None) -> Training:
        """Return the builder of steps that reduce gradients over all workers."""
        encoding = self.comm_encoding if encoding_stage is None else self.stage_encodings[encoding_stage]
        return self._training(training, encoding)

    def _training(
        self, training: Training, encoding: Callable[[tuple[int, ...]], CommEncoding]
    ) -> DataParallelTraining:
        return DataParallelTraining.of(training, comm_encoding=encoding)

    def passes(self) -> Sequence[Pass]:
        """Return the pass that sums gradients in buckets."""
        return (self.buckets,)


@dataclass
class SufficientFactorsPlan(DataParallelPlan):
    """Workers send the factors of chosen gradients of matrices instead of their sums."""

    choice: UsesFactors = field(kw_only=True)
    most_samples: int = field(kw_only=True)
    """Largest number of a batch's samples on one worker."""
    check_layers: Callable[[frozenset[str]], None] = field(kw_only=True)
    """Raises `InputError` if the gradient of a chosen layer has no factors; the argument: all layers with factors."""
    factoring: SufficientFactorPlan | None = field(default=None, init=False)

    def prepare(self, training: Training, net_of: Callable[[int], NetGraph]) -> None:
        """Choose the gradients whose factors are sent."""
        plain = DataParallelTraining.of(training, comm_encoding=self.comm_encoding)
        self.factoring, self._possible = choose_factors(
            self.choice, self.workers, self.most_samples, lambda samples: plain.weighted_gradients(net_of(samples))
        )

    def _training(
        self, training: Training, encoding: Callable[[tuple[int, ...]], CommEncoding]
    ) -> DataParallelTraining:
        return DataParallelTraining.of(training, comm_encoding=encoding, factoring=self.factoring)

    def add_states(self, compiler: Compiler) -> None:
        """Check the chosen layers, after the problems of the net itself have been reported."""
        self.check_layers(self._possible)


@dataclass
class ShardedOptimizerPlan(DataParallelPlan):
    """Each worker updates its pieces of the parameters, and gathers the others' (ZeRO-1)."""

    config: ShardingConfig = field(kw_only=True)
    sharding: OptimizerSharding = field(init=False)

    def prepare(self, training: Training, net_of: Callable[[int], NetGraph]) -> None:
        """Assign pieces of the parameters to workers."""
        self.sharding = shard_parameters(self.config, *hypothetical_update(training, net_of(1)))

    def _training(
        self, training: Training, encoding: Callable[[tuple[int, ...]], CommEncoding]
    ) -> DataParallelTraining:
        return DataParallelTraining.of(training, comm_encoding=encoding, sharding=self.sharding)

    def add_states(self, compiler: Compiler) -> None:
        """Add full tensors of the averages with which the net is evaluated."""
        _add_evaluated(compiler, self.sharding)


@dataclass
class ParameterServerPlan(DistributedPlan):
    """Workers compute gradients, and servers update their pieces of the parameters."""

    logs_steps: ClassVar[bool] = False
    config: ShardingConfig
    role: ProcessRole = ProcessRole.ALL
    sharding: OptimizerSharding = field(init=False)

    def prepare(self, training: Training, net_of: Callable[[int], NetGraph]) -> None:
        """Assign pieces of the parameters to servers."""
        self.sharding = shard_parameters(self.config, *hypothetical_update(training, net_of(1)))

    def training(self, training: Training, encoding_stage: int | None) -> Training:
        """Return the builder of a server's updates, or of a worker's gradients."""
        if self.role is ProcessRole.UPDATE:
            return ShardUpdateTraining.of(training, sharding=self.sharding)
        return training

    def add_states(self, compiler: Compiler) -> None:
        """Add full tensors of the averages with which workers evaluate the net."""
        if self.role is not ProcessRole.UPDATE:
            _add_evaluated(compiler, self.sharding)


@dataclass
class TensorParallelPlan(DataParallelPlan):
    """Each worker holds a slice of some matrices, and multiplies the batches of all workers by it."""

    logs_steps: ClassVar[bool] = False
    rank: int = field(kw_only=True)
    samples: int = field(kw_only=True)
    """Samples of a full batch, on all workers together."""
    choose: SplitChoice = field(kw_only=True)
    splits: Mapping[str, ParameterSplit] = field(init=False)
    """Splits of parameters, by name."""

    def prepare(self, training: Training, net_of: Callable[[int], NetGraph]) -> None:
        """Choose the parameters that are split. Raises `SpecError` if a named one can't be split."""
        self.splits = split_parameters(training.spec, net_of(1), self.choose, self.workers, self.rank)
        self._prepared = training, net_of

    def global_batch(self, batch_size: int) -> int:
        """Return the samples of all workers if this one has `batch_size`, of a full batch or of equal parts."""
        full = abs(self.samples / self.workers - batch_size) < 1
        return self.samples if full else batch_size * self.workers

    def partition(self, net: NetGraph, batch_size: int, global_batch: int) -> NetGraph:
        """Return the net with its products split over the workers."""
        return split_net(net, self.splits, self.workers, self.rank, batch_size, global_batch)

    def add_states(self, compiler: Compiler) -> None:
        """Add the full tensor of each split parameter, and of its average. Raises `SpecError`."""
        training, net_of = self._prepared
        if self.splits:
            net = self.partition(net_of(1), 1, self.global_batch(1))
            self._check_solver(training, split_but_needed_in_full(DataParallelTraining.of(training), net))
        for name in self.splits:
            compiler.gathered[name] = add_gathered_state(compiler, name, name)
            average, full = compiler.evaluated.get(name), compiler.gathered[name]
            compiler.evaluated[name] = full if average is None else add_gathered_state(compiler, name, average, full)

    @staticmethod
    def _check_solver(training: Training, names: Sequence[str]) -> None:
        if names:
            raise SpecError(
                Problem(
                    f"parameters are split though their update needs the full tensor: {listing(names, 3)}",
                    training.solver.where(), "solver",
                    expected="a solver without norms or constraints of these parameters, or layers that are not split",
                    hint=f"`parallel.layers: {{{names[0].partition('/')[0]}: whole}}` does not split this layer",
                )
            )  # fmt: skip


@dataclass
class PipelinePlan(DistributedPlan):
    """Each worker computes consecutive layers, through which a batch passes in micro-batches."""

    config: PipelineConfig
    logs_steps: ClassVar[bool] = False
    splits_net: ClassVar[bool] = True

    def prepare(self, training: Training, net_of: Callable[[int], NetGraph]) -> None:
        """Keep the training and the net from which stages are built."""
        self._training, self._net_of = training, net_of

    def training(self, training: Training, encoding_stage: int | None) -> Training:
        """Return the builder of steps of this worker's stage."""
        return PipelinedTraining(training.spec, training.solver, training.dtype, training.scaling, config=self.config)

    def passes(self) -> Sequence[Pass]:
        """Return the pass that sums the losses of all stages in one message."""
        return (BucketGradients(),)

    def stages_of(self, samples: int) -> PipelineStages:
        """Return the net for micro-batches of some samples, cut into stages."""
        spec, dtype = self._training.spec, self._training.dtype
        return PipelineStages(spec, build(spec, samples, training=True, dtype=dtype), self.config)

    @cached_property
    def owners(self) -> Mapping[str, int]:  # type: ignore[override]  # computed when first needed
        """Rank of the worker whose stage updates a parameter or statistic, by its name."""
        if self.config.stages == 1:
            return {}
        net = self.stages_of(1)
        return {name: net.stage_of(name) for name in net.built.builder.states}

    def add_states(self, compiler: Compiler) -> None:
        """Add states for the averages of all stages with which the net is evaluated."""
        if self.config.stages > 1:
            training = self.training(self._training, None)
            assert isinstance(training, PipelinedTraining)
            for name, label in training.evaluated(self._net_of(1)).items():
                compiler.evaluated[name] = add_gathered_state(compiler, name, label, name)


def add_gathered_state(compiler: Compiler, name: str, label: str, follows: str | None = None) -> str:
    """Add a state for the full tensor of `label`, a parameter or its average, and return its name.

    It is initialized from the state `follows`, if that is given.
    """
    info, gathered = compiler.info[name], f"{GATHERED}/{label}"
    kind = info.value.type if info.shard is None else info.value.type.with_shape(*info.shard.shape)
    with in_scope(info.value.node.scope):
        value = State(gathered, kind)()
    compiler.info[gathered] = StateInfo(value, info.initial, GATHERED, initialized_from=follows, gathers=label)
    return gathered


def _add_evaluated(compiler: Compiler, sharding: OptimizerSharding) -> None:
    for name, label in sharding.evaluated.items():
        compiler.evaluated[name] = add_gathered_state(compiler, name, label, name)
