"""`Form`: a net for one purpose and batch size, from graph values to the bound program, each when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from netspec.backends.failures import OutOfMemory
from netspec.backends.program import Program
from netspec.compile.build import Built, build
from netspec.compile.division import Divide, Division
from netspec.compile.largest import largest_batch
from netspec.compile.pipelining import PipelinedTraining
from netspec.compile.planning import make_plan, plan_within
from netspec.compile.purposes import STEPS, Duty, Purpose
from netspec.compile.steps import gradients_graph, losses, training_form
from netspec.compile.training import Made, Training
from netspec.errors import Problem, RunError, SpecError, listing
from netspec.graph.graph import Graph
from netspec.graph.plan import Plan
from netspec.graph.value import Value

if TYPE_CHECKING:
    from netspec.compile.compiler import Compiler


class Form:
    """A net for one purpose and batch size, compiled as far as anybody has asked."""

    def __init__(self, compiler: Compiler, purpose: Purpose, batch_size: int, stage: int | None, whole: int) -> None:
        """`whole` is the size of all workers' batch together, where parameters are cut."""
        self._compiler, self._purpose, self._batch_size, self._whole = compiler, purpose, batch_size, whole
        self._sending = compiler.sending if stage is None else compiler.earlier[stage]

    @cached_property
    def plain(self) -> Built:
        """The net as graph values, with all parameters whole."""
        purpose, compiler = self._purpose, self._compiler
        training, judged = (
            purpose in (*STEPS, Purpose.GRADIENTS, Purpose.FORWARD),
            purpose not in (Purpose.PREDICT, Purpose.ADAPT),
        )
        evaluates, steps = purpose in (Purpose.TEST, Purpose.PREDICT), purpose in STEPS
        standing = compiler.evaluated if evaluates else {} if steps else compiler.wholes
        size, dtype, workers = self._batch_size, compiler.dtype, compiler.workers if steps else 1
        postponed = compiler.postponed if steps or purpose is Purpose.ADAPT else {}
        accepts = partial(compiler.device.accepts, precision=compiler.precision)
        with compiler.device.planning():
            return build(
                compiler.spec, size, training=training, dtype=dtype, judged=judged, standing=standing, workers=workers,
                postponed=postponed, accepts=accepts,
            )  # fmt: skip

    @cached_property
    def built(self) -> Built:
        """The net as graph values."""
        cutting, cuts = self._compiler.cutting, self._compiler.cuts
        if cutting is None or self._purpose not in STEPS:
            return self.plain
        return cutting.divided(self.plain, cuts, self._batch_size, self._whole)

    @cached_property
    def graph(self) -> Graph:
        """What the program computes."""
        built, spec = self.built, self._compiler.spec
        match self._purpose:
            case Purpose.TRAIN:
                return self._known(self._training(self._compiler.division).step(built))
            case Purpose.ACCUMULATE:
                return self._known(self._training(self._compiler.division).sums(built))
            case Purpose.UPDATE:
                training = self._training(self._compiler.division)
                pieces = self._compiler.duty is Duty.UPDATE
                return self._known(training.update_of_pieces(built) if pieces else training.update(built))
            case Purpose.GRADIENTS:
                return gradients_graph(spec, built)
            case Purpose.FORWARD:
                return training_form(built)
            case Purpose.TEST:
                totals = {
                    f"{name}/{index}": value
                    for name, (_, values) in built.metrics.items()
                    for index, value in enumerate(values)
                }
                return Graph({**losses(built), **totals})
            case Purpose.ADAPT:
                return Graph({
                    f"{name}/{index}": value
                    for name, one in built.builder.adapted.items()
                    for index, value in enumerate(one.results)
                })  # fmt: skip
        return Graph(built.outputs, named=built.values)

    def _training(self, division: Division | None) -> Training:
        compiler = self._compiler
        assert compiler.solver is not None, "a compiler without a solver has no training step"
        scaling = compiler.loop.scaling if compiler.loop is not None else None
        if compiler.staged is not None:
            return PipelinedTraining(compiler.spec, compiler.solver, compiler.dtype, scaling, staged=compiler.staged)
        return Training(
            compiler.spec, compiler.solver, compiler.dtype, scaling, compiler.workers, self._sending, division,
            compiler.factoring,
        )  # fmt: skip

    def weighed(self) -> dict[str, Value]:
        """The gradients of a worker's part of a batch, as they are added to those of the others."""
        return self._training(None).weighed(self.built)

    def check_pieces(self) -> None:
        """Raise `SpecError` where the solver would have to see the whole of a parameter that is cut."""
        found, solver = self._training(None).looking_at_whole(self.built), self._compiler.solver
        if found:
            assert solver is not None
            raise SpecError(
                Problem(
                    f"parameters are cut whose update looks at the whole of each: {listing(found, 3)}", solver.where(),
                    "solver", expected="a solver without norms or constraints of these, or layers that are not cut",
                    hint=f"`parallel.layers: {{{found[0].partition('/')[0]}: whole}}` leaves a layer as it is",
                )
            )  # fmt: skip

    def standing(self) -> Mapping[str, str]:
        """The states that stand for parameters of all stages wherever the net is not trained."""
        training = self._training(None)
        assert isinstance(training, PipelinedTraining)
        return training.evaluated(self.built)

    def divided(self, how: Divide) -> Division:
        """Who moves which piece of the parameters."""
        return self._training(None).divide(self.built, how)

    def _known(self, made: Made) -> Graph:
        """The graph; its states become known to the compiler."""
        for label, info in made.states.items():
            self._compiler.info.setdefault(label, info)
        for name, label in made.evaluated.items():
            self._compiler.evaluated.setdefault(name, label)
        return made.graph

    @cached_property
    def plan(self) -> Plan:
        """Order, kernels and memory. Raises `SpecError` where a training step does not fit into its memory budget."""
        compiler = self._compiler
        if self._purpose in STEPS and compiler.loop is not None:
            return plan_within(
                compiler.loop, self.graph, compiler.device, compiler.precision, compiler.states.nbytes, compiler.buckets
            )
        return make_plan(self.graph, compiler.device, compiler.precision)

    @cached_property
    def program(self) -> Program:
        """The bound program. Raises `RunError`, with what is planned, where the device has no memory for it."""
        plan, states = self.plan, self._compiler.states
        try:
            return Program(plan, self._compiler.device, states)
        except OutOfMemory as error:
            (found,) = error.problems
        # Only now, when nothing holds what had been allocated, is it known what is free.
        planned = f"batches of {self._batch_size:,} need {plan.memory.nbytes / 1e9:,.1f} GB in the program"
        notes = [f"{planned} `{self._purpose}`, beside {states.nbytes / 1e9:,.1f} GB of states", *self._smaller()]
        raise RunError(replace(found, notes=(*found.notes, *notes)))

    def _smaller(self) -> list[str]:
        """The largest batch that fits into what is free now, where planning can tell."""
        compiler = self._compiler
        free = compiler.device.free_bytes()
        if free is None or compiler.staged is not None or self._purpose is Purpose.UPDATE:
            return []  # pieces of a batch are no batch, and an update has none
        found = largest_batch(lambda samples: compiler.plan(self._purpose, samples).memory.nbytes, free,
                              self._batch_size)  # fmt: skip
        if found is None:
            return ["not even one sample fits into what is free"]
        return [f"the largest batch that fits is one of {found:,}"] if found < self._batch_size else []
