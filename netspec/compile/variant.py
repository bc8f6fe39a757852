"""`CompiledVariant`: a net for one purpose and batch size, compiled on demand from spec to bound program."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from netspec.backends.failures import OutOfMemory
from netspec.compile.build import NetGraph, build
from netspec.compile.largest_batch import largest_batch
from netspec.compile.purposes import STEPS, ProgramKind
from netspec.compile.steps import gradients_graph, losses, training_form
from netspec.compile.training import StepGraph
from netspec.graph.graph import Graph

if TYPE_CHECKING:
    from netspec.backends.program import Program
    from netspec.compile.compiler import Compiler
    from netspec.compile.shared_plans import SharedPlan
    from netspec.graph.execution_plan import ExecutionPlan


class CompiledVariant:
    """A net for one purpose and batch size; each stage of its compilation runs when it is first used.

    `netspec check` needs only the graph: it loads neither the passes nor the code that runs programs.
    """

    def __init__(
        self,
        compiler: Compiler,
        purpose: ProgramKind,
        batch_size: int,
        encoding_stage: int | None,
        global_batch: int,
    ) -> None:
        """`encoding_stage` and `global_batch` as in `DistributedPlan`."""
        self._compiler, self._purpose, self._batch_size = compiler, purpose, batch_size
        self._encoding_stage, self._global_batch = encoding_stage, global_batch

    @cached_property
    def full_net(self) -> NetGraph:
        """The net's graph values, before it is partitioned."""
        purpose, compiler = self._purpose, self._compiler
        training = purpose in (*STEPS, ProgramKind.GRADIENTS, ProgramKind.FORWARD)
        with_losses = purpose not in (ProgramKind.PREDICT, ProgramKind.ADAPT)
        evaluates, is_step = purpose in (ProgramKind.TEST, ProgramKind.PREDICT), purpose in STEPS
        state_aliases = compiler.evaluated if evaluates else {} if is_step else compiler.gathered
        size, dtype, workers = self._batch_size, compiler.dtype, compiler.workers if is_step else 1
        uint8_inputs = compiler.uint8_inputs if is_step or purpose is ProgramKind.ADAPT else {}
        accepts = partial(compiler.device.accepts, precision=compiler.precision)
        with compiler.device.planning_context():
            return build(
                compiler.spec, size, training=training, dtype=dtype, with_losses=with_losses,
                evaluated_as=state_aliases, workers=workers, uint8_inputs=uint8_inputs, accepts=accepts,
            )  # fmt: skip

    @cached_property
    def net(self) -> NetGraph:
        """The part of the net that this worker computes."""
        if self._purpose not in STEPS:
            return self.full_net
        return self._compiler.distribution.partition(self.full_net, self._batch_size, self._global_batch)

    @cached_property
    def step(self) -> StepGraph:
        """The training step, or the part of it that the program computes."""
        training = self._compiler.distribution.training(self._compiler.single_worker_training(), self._encoding_stage)
        match self._purpose:
            case ProgramKind.TRAIN:
                return training.step(self.net)
            case ProgramKind.ACCUMULATE:
                return training.accumulate(self.net)
            case ProgramKind.UPDATE:
                return training.update(self.net)
        raise AssertionError(f"{self._purpose} is not part of a training step")

    @cached_property
    def graph(self) -> Graph:
        """The graph that the program computes."""
        if self._purpose in STEPS:
            return self.step.graph
        net, spec = self.net, self._compiler.spec
        match self._purpose:
            case ProgramKind.GRADIENTS:
                return gradients_graph(spec, net, self._compiler.solver)
            case ProgramKind.FORWARD:
                return training_form(net)
            case ProgramKind.TEST:
                totals = {
                    f"{name}/{index}": value
                    for name, (_, values) in net.metrics.items()
                    for index, value in enumerate(values)
                }
                return Graph({**losses(net), **totals})
            case ProgramKind.ADAPT:
                return Graph({
                    f"{name}/{index}": value
                    for name, adapted in net.builder.adapted.items()
                    for index, value in enumerate(adapted.results)
                })  # fmt: skip
        return Graph(net.outputs, named=net.values)

    @cached_property
    def plan(self) -> ExecutionPlan:
        """Order, kernels and memory. Raises `SpecError` if a training step exceeds its memory budget."""
        return self._make_plan(self.graph) if self._shared is None else self._shared.plan

    @cached_property
    def _shared(self) -> SharedPlan | None:
        """The plan shared with other nets, if this one shares its plans."""
        sharing = self._compiler.shared_plans
        if sharing is None:
            return None
        key = self._purpose, self._batch_size, self._encoding_stage, self._global_batch

        def graph_of(compiler: Compiler) -> Graph:
            return compiler.graph(self._purpose, self._batch_size, self._global_batch or None)

        return sharing.get(self._compiler, key, graph_of, self._make_plan)

    def _make_plan(self, graph: Graph) -> ExecutionPlan:
        from netspec.compile.planning import make_plan, plan_within

        compiler = self._compiler
        device, precision, loop = compiler.device, compiler.precision, compiler.loop
        passes = compiler.distribution.passes() if self._purpose in STEPS else ()
        if self._purpose in STEPS and loop is not None:
            return plan_within(loop, graph, device, precision, compiler.states.nbytes, passes)
        return make_plan(graph, device, precision, passes=passes)

    @cached_property
    def program(self) -> Program:
        """The bound program. Raises `OutOfMemory` with the planned sizes."""
        from netspec.backends.program import Program

        plan, states, shared = self.plan, self._compiler.states, self._shared
        if shared is not None:
            shared.write_constants(self._compiler)
        try:
            return Program(plan, self._compiler.device, states, None if shared is None else shared.arena)
        except OutOfMemory as error:
            (problem,) = error.problems
        # Outside the `except` block the failed allocations are released, so that the free memory is known.
        planned = f"batches of {self._batch_size:,} need {plan.memory.nbytes / 1e9:,.1f} GB for the program"
        needs = f"in addition to {states.nbytes / 1e9:,.1f} GB of states"
        notes = [f"{planned} `{self._purpose}`, {needs}", *self._largest_batch_note()]
        raise OutOfMemory(replace(problem, notes=(*problem.notes, *notes)))

    def _largest_batch_note(self) -> list[str]:
        """Report the largest batch that fits into the free memory, if planning can determine it."""
        compiler = self._compiler
        free = compiler.device.free_bytes()
        if free is None or compiler.distribution.splits_net or self._purpose is ProgramKind.UPDATE:
            return []  # a smaller batch does not help these programs
        largest = largest_batch(lambda samples: compiler.plan(self._purpose, samples).memory.nbytes, free,
                              self._batch_size)  # fmt: skip
        if largest is None:
            return ["not even one sample fits into the free memory"]
        return [f"the largest batch that fits has {largest:,} samples"] if largest < self._batch_size else []
