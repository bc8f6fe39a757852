"""`Compiler`: programs of one net on one device, by purpose and batch size."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from typing import Any

from netspec.backends.base import Device
from netspec.backends.device import open_device
from netspec.backends.program import Program
from netspec.backends.states import States
from netspec.compile.build import Built, build
from netspec.compile.cutting import Cutting
from netspec.compile.division import Divide, Division
from netspec.compile.factors import factoring
from netspec.compile.form import Form
from netspec.compile.purposes import STEPS, Duty, Purpose
from netspec.compile.spreading import send_plainly
from netspec.compile.stages import Staged, StagedNet
from netspec.errors import InputError, Problem, listing
from netspec.graph.graph import Graph
from netspec.graph.ops.communication import Sending
from netspec.graph.ops.gathering import Choice, Factoring
from netspec.graph.ops.source import State
from netspec.graph.plan import Plan
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import Value, in_scope
from netspec.layers.states import Constant, Domain, StateInfo
from netspec.passes.cut import Cut
from netspec.passes.data_parallel import DataParallel
from netspec.schema.net import NetSpec
from netspec.schema.train import LoopSpec
from netspec.solvers.base import SolverSpec

CENTER = "center"
"""Role of the states that workers with weights of their own have in common."""
GATHERED = "gathered"
"""Role of the states that are wholes of what each worker has a piece of."""
KEPT_FORMS = 8
"""How many pairs of purpose and batch size stay compiled: a training and its evaluation need five."""


class Compiler:
    """Programs of one net on one device, by purpose and batch size, and the states that they share.

    With `dtype` bfloat16 or float16 values are computed in float32, and those that may be are rounded where they go to
    memory; states stay float32. With tf32 products may be rounded. Raises `SpecError` where the net's shapes do not
    fit, or where there is a solver and nothing to train; `InputError` where the device has no such type.
    """

    def __init__(
        self,
        spec: NetSpec,
        *,
        solver: SolverSpec | None = None,
        dtype: DType | Precision = Precision.FLOAT32,
        device: str | Device = "auto",
        seed: int = 1,
        loop: LoopSpec | None = None,
        workers: int = 1,
        buckets: DataParallel | None = None,
        in_parts: bool = False,
        sending: Callable[[tuple[int, ...]], Sending] = send_plainly,
        earlier: Sequence[Callable[[tuple[int, ...]], Sending]] = (),
        factors: tuple[Choice, int] | None = None,
        centers: bool = False,
        divide: Divide | None = None,
        shared: Sequence[str] = (),
        duty: Duty = Duty.ALL,
        cutting: Cutting | None = None,
        staged: Staged | None = None,
    ) -> None:
        """`loop` says what is recomputed within which memory (without it nothing is), and what a step consists of.

        With several `workers` a step finds the mean over what all of them have, which travels in `buckets`, gradients
        in the form that `sending` says for their shapes. With `factors`, a choice and the samples of the worker that
        has most of a batch, factors are sent instead of those gradients that are chosen. With `centers` a state stands
        for each parameter and statistic wherever the net is not trained; programs leave it alone. `in_parts`: a batch
        is computed in several parts, even where a step has one batch. States with one of the roles
        `shared` are those of all workers of the host.

        With `divide` each worker moves pieces of the parameters; averages of them that are evaluated are gathered.
        Where those who do and those who find the gradients are others, `duty` says which of them this one is. With
        `cutting` it has and uses no more than pieces of some, by which it multiplies the batches of all workers. With
        `staged` each moves those of one stage of the net, through which batches pass in micro-batches.
        """
        self.precision = Precision(dtype)
        self.spec, self.solver, self.dtype, self.seed, self.loop = spec, solver, self.precision.computed, seed, loop
        self.workers, self.buckets, self.sending = workers, buckets or DataParallel(), sending
        self.earlier = tuple(earlier)
        """As `sending`, in the stages of a training before the last one."""
        self.staged = staged
        self.device = open_device(device) if isinstance(device, str) else device
        self._check_precision()
        self._divide, self.duty, self.cutting = divide, duty, cutting
        self.postponed: dict[str, Any] = {}
        """What bytes stand for in the inputs of training steps that come as such: (C, 256) or (1, 256)."""
        self.evaluated: dict[str, str] = {}
        """Parameters, and the states that stand for them wherever the net is not trained: averages, for example."""
        self.wholes: dict[str, str] = {}
        """Parameters of which this worker has pieces, and the states that are wholes of them."""
        whole = solver is not None and solver.whole
        several = whole or in_parts or duty is not Duty.ALL or (loop is not None and loop.accumulate > 1)
        self.updates = several and not whole and duty is not Duty.GRADIENTS
        """Whether the parameters are moved by a program of its own."""
        self.of_batch = Purpose.ACCUMULATE if several else Purpose.TRAIN
        """What a training runs for each batch: the whole step, or a part of one."""
        self._forms: dict[tuple[Purpose, int, int | None, int], Form] = {}
        self.factoring: Factoring | None = None
        self.factored_layers: frozenset[str] = frozenset()
        """Those of which factors could be sent."""
        form = self.built(Purpose.TEST if solver is None else self.of_batch, 1)
        self.info: dict[str, StateInfo] = {} if duty is Duty.UPDATE else dict(form.builder.states)
        self.metrics = {name: metric for name, (metric, _) in form.metrics.items()}
        self.domains: dict[str, Domain] = form.builder.domains
        self.adapts = bool(form.builder.adapted)
        """Whether layers want states adapted to the training data."""
        if factors is not None:
            self._choose_factors(*factors)
        if solver is not None:
            if duty is not Duty.UPDATE:
                self.graph(self.of_batch, 1)
            if self.updates:
                self.graph(Purpose.UPDATE, 1)
        if centers:
            self._add_centers()
        if self.division is not None and duty is not Duty.UPDATE:
            for name, label in self.division.evaluated.items():
                self.evaluated[name] = self._gathering(name, label, name)
        if self.cuts:
            self._form(self.of_batch, 1).check_pieces()
        for name in self.cuts:
            self.wholes[name] = self._gathering(name, name)
            average = self.evaluated.get(name)
            standing = self.wholes[name] if average is None else self._gathering(name, average, self.wholes[name])
            self.evaluated[name] = standing
        if staged is not None and staged.stages > 1:
            for name, label in self._form(self.of_batch, 1).standing().items():
                self.evaluated[name] = self._gathering(name, label, name)
        kinds = {name: info.value.type for name, info in self.info.items()}
        self.states = States(kinds, self.device, self.names(*shared))
        if self.device.runs:
            self.reset()

    def _check_precision(self) -> None:
        """Raise `InputError` where values can't lie in the device's memory as they should."""
        wanted, has = self.precision.stored, (DType.FLOAT64, DType.FLOAT32, *self.device.narrow)
        if wanted in has:
            return
        loop, others = self.loop, [str(one) for one in Precision if one.stored in has]
        raise InputError(
            Problem(
                f"the device `{self.device.name}` does not compute in {wanted}",
                None if loop is None else loop.where("precision"), "" if loop is None else "train.precision",
                expected=f"one of {listing(others)}",
                hint=f"set `train.precision`, or take a device that does: {self.device.computing(wanted)}",
            )
        )  # fmt: skip

    @property
    def remark(self) -> str | None:
        """What the device makes of the precision, where that is not what one would expect."""
        if self.precision != Precision.TF32 or self.device.has_tf32:
            return None
        return f"the device `{self.device.name}` has no kernels that round to tf32: it computes in float32"

    def _choose_factors(self, choice: Choice, most: int) -> None:
        def weighed(samples: int) -> dict[str, Value]:
            return self._form(self.of_batch, samples).weighed()

        self.factoring, self.factored_layers = factoring(choice, self.workers, most, weighed)

    def _add_centers(self) -> None:
        for name, info in list(self.info.items()):
            kind = info.value.type
            if kind.dtype.is_float and (info.trainable or info.role == "statistic"):
                label = f"{CENTER}/{name}"
                with in_scope(info.value.node.scope):
                    self.info[label] = StateInfo(State(label, kind)(), Constant(), CENTER, follows=name)
                self.evaluated[name] = label

    def _gathering(self, name: str, label: str, follows: str | None = None) -> str:
        """The label of a state that is the whole of what workers have pieces of for a parameter.

        It starts as the state that it `follows`, if it does.
        """
        info, gathered = self.info[name], f"{GATHERED}/{label}"
        kind = info.value.type if info.piece is None else info.value.type.with_shape(*info.piece.shape)
        with in_scope(info.value.node.scope):
            value = State(gathered, kind)()
        self.info[gathered] = StateInfo(value, info.initial, GATHERED, follows=follows, gathers=label)
        return gathered

    @cached_property
    def cuts(self) -> Mapping[str, Cut]:
        """How parameters are cut of which each worker has a piece. Raises `SpecError` where they can't be."""
        if self.cutting is None:
            return {}
        return self.cutting.cuts(self.spec, self._form(self.of_batch, 1).plain)

    @cached_property
    def division(self) -> Division | None:
        """Who moves which piece of the parameters, where each worker moves some."""
        if self._divide is None:
            return None
        return self._form(self.of_batch, 1).divided(self._divide)

    @cached_property
    def owners(self) -> dict[str, int]:
        """Parameters and statistics that one worker alone moves, and which one: all have them, to evaluate the net."""
        if self.staged is None or self.staged.stages == 1:
            return {}
        net = self.in_stages(1)
        return {name: net.stage_of(name) for name in net.built.builder.states}

    def in_stages(self, samples: int) -> StagedNet:
        """What goes from stage to stage of a micro-batch of so many samples, where the net is cut into stages."""
        assert self.staged is not None
        return StagedNet(self.spec, build(self.spec, samples, training=True, dtype=self.dtype), self.staged)

    def postpone(self, late: Mapping[str, Any]) -> None:
        """Have training steps, and what adapts layers, read inputs as bytes, and do what is left with them."""
        self.postponed = dict(late)
        self._forms.clear()

    def reset(self) -> None:
        """Give every state its first value: of a piece, that part of what the whole's would be."""
        for name, info in self.info.items():
            kind, piece = info.value.type, info.piece
            shape = kind.shape if piece is None else piece.shape
            whole = info.initial.sample(self.seed, info.gathers or name, shape, str(kind.dtype))
            self.states.assign(name, whole if piece is None else piece.of(whole))
        self.follow()
        self.device.settle()

    def follow(self, names: Container[str] | None = None) -> None:
        """Give slots that start as their parameter its value: needed where parameters got other first values.

        Those of these names; default: all.
        """
        for name, info in self.info.items():
            if info.follows is not None and (names is None or name in names):
                followed, piece = self.states[info.follows], info.piece
                apart = piece is not None and self.info[info.follows].piece is None
                self.states.assign(name, piece.of(followed) if piece is not None and apart else followed)

    def assign(self, name: str, whole: Any) -> None:
        """Give a parameter or statistic a value, this worker's piece and the whole where it has both."""
        piece = self.info[name].piece
        self.states.assign(name, whole if piece is None else piece.of(whole))
        if name in self.wholes:
            self.states.assign(self.wholes[name], whole)

    def weights(self) -> dict[str, Any]:
        """Parameters and statistics as NumPy arrays by name, as the net is evaluated with them."""
        return {name: self.states[self.evaluated.get(name, name)] for name in self.names("parameter", "statistic")}

    def names(self, *roles: str) -> list[str]:
        """Names of the states with one of these roles (`StateInfo.role`)."""
        return [name for name, info in self.info.items() if info.role in roles]

    def types(self, *roles: str) -> dict[str, TensorType]:
        """Element types and shapes of the states with one of these roles, by name; of pieces, those of the wholes."""
        found = {name: self.info[name] for name in self.names(*roles)}
        return {
            name: info.value.type if info.piece is None else info.value.type.with_shape(*info.piece.shape)
            for name, info in found.items()
        }

    def built(self, purpose: Purpose, batch_size: int, whole: int | None = None) -> Built:
        """The net's graph values for a purpose.

        Where parameters are cut, `whole` is how many samples a training step has on all workers together.
        """
        return self._form(purpose, batch_size, whole=whole).built

    def graph(self, purpose: Purpose, batch_size: int, whole: int | None = None) -> Graph:
        """The whole graph for a purpose, before any pass. Raises `SpecError` where there is nothing to train."""
        return self._form(purpose, batch_size, whole=whole).graph

    def plan(self, purpose: Purpose, batch_size: int, stage: int | None = None, whole: int | None = None) -> Plan:
        """Everything decided for a purpose and batch size; nothing is allocated. `stage` is one of the `earlier`."""
        return self._form(purpose, batch_size, stage, whole).plan

    def program(self, purpose: Purpose, batch_size: int, stage: int | None = None, whole: int | None = None) -> Program:
        """The bound program for a purpose and batch size. Raises `InputError` on a device that only plans."""
        return self._form(purpose, batch_size, stage, whole).program

    def _form(self, purpose: Purpose, batch_size: int, stage: int | None = None, whole: int | None = None) -> Form:
        """What is compiled for a purpose and batch size. The `KEPT_FORMS` used last are kept."""
        if self.cutting is None or purpose not in STEPS:
            whole = 0
        elif whole is None:
            whole = self.cutting.whole(batch_size)
        key = purpose, batch_size, stage, whole
        form = self._forms.pop(key, None) or Form(self, *key)
        self._forms[key] = form
        if len(self._forms) > KEPT_FORMS:
            del self._forms[next(iter(self._forms))]
        return form
