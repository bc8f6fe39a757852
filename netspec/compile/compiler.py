"""`Compiler`: programs of one net on one device, by purpose and batch size."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.backends.states import States
from netspec.compile.build import NetGraph
from netspec.compile.distributed_plan import DistributedPlan
from netspec.compile.purposes import STEPS, ProcessRole, ProgramKind
from netspec.compile.training import Training
from netspec.compile.variant import CompiledVariant
from netspec.errors import InputError, Problem, listing
from netspec.graph.graph import Graph
from netspec.graph.types import DType, Precision, TensorType
from netspec.layers.states import Domain, StateInfo
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import LoopSpec
from netspec.solvers.base import SolverSpec

if TYPE_CHECKING:
    from netspec.backends.program import Program
    from netspec.compile.shared_plans import SharedPlans
    from netspec.graph.execution_plan import ExecutionPlan

KEPT_VARIANTS = 8
"""Number of variants that stay compiled; training with evaluation needs five."""


class Compiler:
    """Programs of one net on one device, by purpose and batch size, and the states that they share.

    With `dtype` bfloat16 or float16 values are computed in float32, and rounded when they are stored if their op allows
    it; states stay float32. With tf32 products may be rounded. Raises `SpecError` if shapes in the net do not match,
    or if there is a solver but no parameter to train; `InputError` if the device does not support the type.
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
        distribution: DistributedPlan | None = None,
    ) -> None:
        """`loop` sets the memory budget, recomputation (none by default) and gradient accumulation.

        `distribution` distributes the training over several workers; by default this process trains alone.
        """
        self.precision = Precision(dtype)
        self.spec, self.solver, self.seed, self.loop = spec, solver, seed, loop
        self.dtype = self.precision.compute_dtype
        self.distribution = distribution or DistributedPlan()
        self.device = open_device(device) if isinstance(device, str) else device
        self._check_precision()
        self.uint8_inputs: dict[str, Any] = {}
        """Lookup tables of the inputs of training steps that arrive as bytes: (C, 256) or (1, 256)."""
        self.evaluated: dict[str, str] = {}
        """State that replaces each parameter in evaluation, such as an average of the parameter."""
        self.gathered: dict[str, str] = {}
        """State that holds the full tensor of each parameter of which this worker has a shard."""
        self.shared_plans: SharedPlans | None = None
        """The plans that this net shares with others; None if it makes its own."""
        role = self.distribution.role
        full_batch = solver is not None and solver.full_batch
        accumulates = (
            full_batch
            or self.distribution.accumulates
            or role is not ProcessRole.ALL
            or (loop is not None and loop.accumulate > 1)
        )
        self.updates = accumulates and not full_batch and role is not ProcessRole.GRADIENTS
        """True if a separate program updates the parameters."""
        self.batch_program = ProgramKind.ACCUMULATE if accumulates else ProgramKind.TRAIN
        """The program that training runs for each batch: a full step, or a part of one."""
        self._variants: dict[tuple[ProgramKind, int, int | None, int], CompiledVariant] = {}
        if solver is not None:
            self.distribution.prepare(self.single_worker_training(), self._full_net)
        net = self.net_graph(ProgramKind.TEST if solver is None else self.batch_program, 1)
        self.info: dict[str, StateInfo] = {} if role is ProcessRole.UPDATE else dict(net.builder.states)
        self.metrics = {name: metric for name, (metric, _) in net.metrics.items()}
        self.domains: dict[str, Domain] = net.builder.domains
        self.adapts = bool(net.builder.adapted)
        """Whether layers have states to compute from the training data."""
        self._register_training_states()
        self.distribution.add_states(self)
        kinds = {name: info.value.type for name, info in self.info.items()}
        self.states = States(kinds, self.device, self.names(*self.distribution.shared_roles))
        if self.device.runs:
            self.reset()

    def single_worker_training(self) -> Training:
        """Return the builder of training steps for a single worker."""
        assert self.solver is not None, "a compiler without a solver has no training step"
        scaling = self.loop.scaling if self.loop is not None else None
        return Training(self.spec, self.solver, self.dtype, scaling, self.logs_metrics, self.logs_gradient_norm)

    @property
    def logs_metrics(self) -> bool:
        """Whether training steps compute totals of metrics."""
        return self._logs_steps and self.loop is not None and self.loop.log_metrics and not self.device.runs_ahead

    @property
    def logs_gradient_norm(self) -> bool:
        """Whether training steps compute the norm of all gradients."""
        if self.solver is None or self.loop is None or not self._logs_steps:
            return False
        setting = self.loop.log_gradient_norm
        return self.solver.global_clipnorm is not None if setting is None else setting

    @property
    def _logs_steps(self) -> bool:
        """Whether the training steps of this process can compute metrics and the norm of all gradients."""
        return self.solver is not None and self.distribution.logs_steps

    def _full_net(self, samples: int) -> NetGraph:
        return self._variant(self.batch_program, samples).full_net

    def _register_training_states(self) -> None:
        """Add the states of the programs of a training step that no layer creates."""
        if self.solver is None:
            return
        kinds = [] if self.distribution.role is ProcessRole.UPDATE else [self.batch_program]
        for kind in [*kinds, *([ProgramKind.UPDATE] if self.updates else [])]:
            step = self._variant(kind, 1).step
            for label, info in step.states.items():
                self.info.setdefault(label, info)
            for name, label in step.evaluated.items():
                self.evaluated.setdefault(name, label)

    def _check_precision(self) -> None:
        """Raise `InputError` if the device does not support the storage type of the chosen precision."""
        dtype, supported = (
            self.precision.storage_dtype,
            (DType.FLOAT64, DType.FLOAT32, *self.device.low_precision_dtypes),
        )
        if dtype in supported:
            return
        loop, others = self.loop, [str(precision) for precision in Precision if precision.storage_dtype in supported]
        raise InputError(
            Problem(
                f"the device `{self.device.name}` does not compute in {dtype}",
                None if loop is None else loop.where("precision"), "" if loop is None else "train.precision",
                expected=f"one of {listing(others)}",
                hint=f"set `train.precision`, or choose a device that supports it: {self.device.device_hint(dtype)}",
            )
        )  # fmt: skip

    @cached_property
    def net_yaml(self) -> str:
        """The net's spec as canonical YAML, which each weights file contains."""
        return canonical_yaml(self.spec)

    @property
    def remark(self) -> str | None:
        """A note on how the device treats the precision, if that is unexpected."""
        if self.precision != Precision.TF32 or self.device.has_tf32:
            return None
        return f"the device `{self.device.name}` has no kernels that round to tf32: it computes in float32"

    @property
    def workers(self) -> int:
        """Number of workers over whose samples each step averages."""
        return self.distribution.workers

    def decode_uint8(self, inputs: Mapping[str, Any]) -> None:
        """Let training steps and adaptation read these inputs as bytes, and decode them in the graph."""
        self.uint8_inputs = dict(inputs)
        self._variants.clear()

    def reset(self) -> None:
        """Set every state to its initial value; a shard gets its part of the full tensor's."""
        for name, info in self.info.items():
            tensor_type, shard = info.value.type, info.shard
            shape = tensor_type.shape if shard is None else shard.shape
            full = info.initial.sample(self.seed, info.gathers or name, shape, str(tensor_type.dtype))
            self.states.assign(name, full if shard is None else shard.slice_of(full))
        self.reset_copies()
        self.device.settle()

    def reset_copies(self, names: Container[str] | None = None) -> None:
        """Reset slots that start as a copy of their parameter, after parameters got new initial values.

        `names` restricts this to some slots; default: all.
        """
        for name, info in self.info.items():
            if info.initialized_from is not None and (names is None or name in names):
                source, shard = self.states[info.initialized_from], info.shard
                is_full = shard is not None and self.info[info.initialized_from].shard is None
                self.states.assign(name, shard.slice_of(source) if shard is not None and is_full else source)

    def assign(self, name: str, full: Any) -> None:
        """Assign the full value of a parameter or statistic to its state or shard, and to its gathered copy."""
        shard = self.info[name].shard
        self.states.assign(name, full if shard is None else shard.slice_of(full))
        if name in self.gathered:
            self.states.assign(self.gathered[name], full)

    def weights(self) -> dict[str, Any]:
        """Parameters and statistics as NumPy arrays by name, as the net is evaluated with them."""
        return {name: self.states[self.evaluated.get(name, name)] for name in self.names("parameter", "statistic")}

    def names(self, *roles: str) -> list[str]:
        """Names of the states with one of these roles (`StateInfo.role`)."""
        return [name for name, info in self.info.items() if info.role in roles]

    def types(self, *roles: str) -> dict[str, TensorType]:
        """Return the types of the states with one of these roles, by name; for a shard, the type of the full tensor."""
        infos = {name: self.info[name] for name in self.names(*roles)}
        return {
            name: info.value.type if info.shard is None else info.value.type.with_shape(*info.shard.shape)
            for name, info in infos.items()
        }

    def net_graph(self, purpose: ProgramKind, batch_size: int, global_batch: int | None = None) -> NetGraph:
        """Return the net as graph values for a purpose.

        `global_batch` is the number of samples that a training step has on all workers, if programs depend on it.
        """
        return self._variant(purpose, batch_size, global_batch=global_batch).net

    def graph(self, purpose: ProgramKind, batch_size: int, global_batch: int | None = None) -> Graph:
        """Return the graph for a purpose, before any pass. Raises `SpecError` if there is nothing to train."""
        return self._variant(purpose, batch_size, global_batch=global_batch).graph

    def plan(
        self,
        purpose: ProgramKind,
        batch_size: int,
        encoding_stage: int | None = None,
        global_batch: int | None = None,
    ) -> ExecutionPlan:
        """Return the execution plan for a purpose and batch size; nothing is allocated."""
        return self._variant(purpose, batch_size, encoding_stage, global_batch).plan

    def program(
        self,
        purpose: ProgramKind,
        batch_size: int,
        encoding_stage: int | None = None,
        global_batch: int | None = None,
    ) -> Program:
        """Return the bound program for a purpose and batch size. Raises `InputError` on a device that only plans."""
        return self._variant(purpose, batch_size, encoding_stage, global_batch).program

    def _variant(
        self,
        purpose: ProgramKind,
        batch_size: int,
        encoding_stage: int | None = None,
        global_batch: int | None = None,
    ) -> CompiledVariant:
        """Return the variant for a purpose and batch size. The `KEPT_VARIANTS` used last are kept."""
        if purpose not in STEPS:
            global_batch = 0
        elif (usual := self.distribution.global_batch(batch_size)) == 0 or global_batch is None:
            global_batch = usual
        key = purpose, batch_size, encoding_stage, global_batch
        variant = self._variants.pop(key, None) or CompiledVariant(self, *key)
        self._variants[key] = variant
        if len(self._variants) > KEPT_VARIANTS:
            del self._variants[next(iter(self._variants))]
        return variant
