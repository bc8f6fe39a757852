"""The kernel interface and registry: how backends run ops, and why a kernel rejects a node.

Kernels are defined in `backends/` and registered by op class; nothing above them names one. A kernel for a base class
also serves its subclasses. Among the kernels that accept a node, the one with the highest `rank` is preferred, unless
the layouts that it needs cost more than it gains: the layout pass compares the options of all kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

from netspec.graph.cost_model import MachineModel, machine_model
from netspec.graph.fused import inner_traits
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import Node

Thunk: TypeAlias = Callable[[], None]
"""A bound kernel call. It reads and writes the buffers that it was bound to."""

Example: TypeAlias = tuple[Op, tuple[TensorType, ...]]
"""An op and the types of its operands."""


@dataclass(frozen=True)
class Buffers:
    """Memory that a kernel is bound to: arrays of the operands and of the results that are read."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any | None, ...]
    """Arrays of results; None for a result that is not read, which the kernel need not compute."""
    layouts: LayoutSignature
    """Layouts of operands and results, as the kernel requested them."""
    workspace: Any | None = None
    """`Kernel.workspace` bytes. Their content does not outlive the call."""


class LowPrecision(Enum):
    """Operands and results that a kernel can read and write in 16 bits."""

    NONE = "none"
    ALL = "all"
    OPERANDS = "operands"
    """All except results, which accumulate in memory or are read again."""
    DATA = "data"
    """Data only: see `narrow_data_only`."""


class Kernel:
    """Base class of kernels: one way to run an op on one backend."""

    backend: ClassVar[str]
    rank: ClassVar[int]
    uses_array_library: ClassVar[bool] = False
    """Whether it runs array-library code, which warns of overflow and may use threads of its own."""
    runs_on_host: ClassVar[bool] = False
    """Whether each call on a device involves the CPU, which waits for all earlier work of the device."""
    tf32: ClassVar[bool] = False
    """Whether it rounds float32 operands to a mantissa of ten bits before it multiplies them."""
    required_dtypes: ClassVar[tuple[DType, ...]] = ()
    """Element types in which large operands must be stored; empty: any."""

    low_precision: ClassVar[LowPrecision] = LowPrecision.NONE
    max_elements: ClassVar[int | None] = None
    """Maximum number of elements of an operand or result; None: unlimited."""

    deterministic: ClassVar[bool] = True
    """Whether repeated calls give bit-identical results."""

    supports_inplace: ClassVar[bool] = True
    """Whether its results may overwrite the operands that the op allows to be overwritten."""

    @property
    def label(self) -> str:
        """`backend:KernelClass`, as printed by `netspec plan --kernels`."""
        return f"{self.backend}:{type(self).__name__}"

    def unavailable_reason(self) -> str | None:
        """Return why this kernel cannot run on this machine, e.g. missing CPU instructions; None if it can."""
        return None

    def samples(self) -> Sequence[Example]:
        """Examples of accepted calls, for the registry-wide tests; needed if it accepts no sample of a layer or op."""
        return ()

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        """Return why this kernel cannot run the op with operands of these types; None if it can."""
        return None

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        """The layouts that it reads and writes if the operands are stored as `offered`. Default: plain layouts.

        An operand in another layout is copied before the call.
        """
        return LayoutSignature((PLAIN,) * len(node.inputs), (PLAIN,) * len(node.outputs))

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature | None:
        """The layouts with elements stored in 16 bits where the kernel supports it; None if it does not.

        `preferred` is the result of `layouts` with the element types in which operands and results should be stored.
        """
        match self.low_precision:
            case LowPrecision.NONE:
                return None
            case LowPrecision.ALL:
                return preferred
            case LowPrecision.OPERANDS:
                return preferred.with_unrounded_outputs()
            case LowPrecision.DATA:
                return narrow_data_only(node, preferred)

    def alternatives(self, node: Node, offered: Sequence[Layout]) -> Sequence[LayoutSignature]:
        """Other layouts that it could read and write. The layout pass chooses by the cost of the copies they need."""
        return ()

    def tuning_variants(self, node: Node, signature: LayoutSignature) -> Sequence[Kernel]:
        """Variants of this kernel whose speed cannot be estimated; only autotuning considers them."""
        return ()

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        """Estimated duration of a call with these layouts, to be compared with other ways to run the node."""
        if not inner_traits(node.op).is_contraction:
            return roofline_seconds(node, signature)
        return roofline_seconds(
            node, signature, machine_model().contraction_rate(multiply_precision(node, signature, tf32=self.tf32))
        )

    def threads(self, node: Node) -> int | None:
        """Number of threads to set while this kernel is bound and called; None if any number works."""
        return None

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        """Bytes of scratch memory that a call needs."""
        return 0

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """Prepare everything and return a call without arguments that writes into the given outputs."""
        raise NotImplementedError  # abstract


def multiply_precision(node: Node, signature: LayoutSignature, *, tf32: bool) -> Precision:
    """The precision in which a node multiplies operands stored with this signature; float32 is rounded if `tf32`."""
    stored = signature.inputs[0].stored_dtype(node.inputs[0].type)
    if not stored.is_float:
        return Precision.FLOAT32
    return Precision.TF32 if tf32 and stored == DType.FLOAT32 else Precision(stored)


def bytes_moved(node: Node, signature: LayoutSignature) -> int:
    """Bytes that a node reads and writes if operands and results have this signature."""
    values, layouts = (*node.inputs, *node.outputs), (*signature.inputs, *signature.outputs)
    return sum(layout.nbytes(value.type) for value, layout in zip(values, layouts, strict=True))


def roofline_seconds(node: Node, signature: LayoutSignature, flops_per_second: float | None = None) -> float:
    """Estimated seconds of a node: the larger of the time for arithmetic and the time for memory traffic.

    `flops_per_second` defaults to the float32 rate of the machine that is planned for.
    """
    flops = node.op.flops(*(value.type for value in node.inputs))
    return max(
        flops / (flops_per_second or machine_model().flops_per_second), transfer_seconds(bytes_moved(node, signature))
    )


def transfer_seconds(nbytes: int) -> float:
    """Seconds to read or write `nbytes` on the machine that is planned for."""
    return machine_model().transfer_seconds(nbytes)


def narrow_data_only(node: Node, preferred: LayoutSignature) -> LayoutSignature:
    """`preferred`, with low precision only for operands shaped like the first one, and for narrowable results.

    `wide_inputs` (factors and statistics) keep full precision even if they have that shape, as with rows of one
    element.
    """
    traits, shape = inner_traits(node.op), node.inputs[0].shape
    inputs = (
        layout if value.shape == shape and index not in traits.wide_inputs else layout.with_dtype(None)
        for index, (value, layout) in enumerate(zip(node.inputs, preferred.inputs, strict=True))
    )
    outputs = (
        layout if index in traits.narrowable_outputs else layout.with_dtype(None)
        for index, layout in enumerate(preferred.outputs)
    )
    return LayoutSignature(tuple(inputs), tuple(outputs))


def data_layouts(node: Node, layout: Layout) -> LayoutSignature:
    """`layout` for the data (values with the first operand's shape), plain layouts for all other values."""
    shape = node.inputs[0].shape
    inputs, outputs = (
        tuple(layout if value.shape == shape else PLAIN for value in values) for values in (node.inputs, node.outputs)
    )
    return LayoutSignature(inputs, outputs)


@dataclass(frozen=True)
class KernelOption:
    """One way to run a node: a kernel and the layouts that it reads and writes."""

    kernel: Kernel
    layouts: LayoutSignature
    seconds: float
    """Duration of a call, as estimated by the kernel or as measured."""
    was_measured: bool = False
    """Whether `seconds` was measured together with the other options."""


@dataclass(frozen=True)
class KernelChoice:
    """The kernel chosen for a node, and the rejected ones with the reasons."""

    kernel: Kernel
    rejected: tuple[tuple[str, str], ...] = ()
    seconds: float | None = None
    """Measured duration of a call; None if it was not measured."""

    @property
    def label(self) -> str:
        """Label of the kernel."""
        return self.kernel.label


@dataclass(frozen=True)
class KernelCandidates:
    """The kernels that accept a node, highest rank first, and those that reject it, with their reasons."""

    kernels: tuple[Kernel, ...]
    rejected: tuple[tuple[Kernel, str], ...]


class KernelProvider(Protocol):
    """A device, as the passes see it: its kernels and their speed."""

    @property
    def rates(self) -> MachineModel:
        """Throughput of the machine."""

    @property
    def has_tuner(self) -> bool:
        """Whether kernels are timed for autotuning."""

    def candidates(self, node: Node, precision: Precision = Precision.FLOAT32) -> KernelCandidates:
        """Kernels that accept a node at a precision. Raises `NoKernelError` if there is none."""

    def measured_seconds(self, node: Node, options: Sequence[KernelOption]) -> Sequence[float] | None:
        """Measured seconds of each option, if its operands have the layouts it needs; None if nothing was measured."""


_kernels: dict[type[Op], list[Kernel]] = {}


def kernel(
    *ops: type[Op], backend: str, rank: int, tf32: bool = False, nondeterministic: bool = False
) -> Callable[[type[Kernel]], type[Kernel]]:
    """Class decorator that registers a kernel for op classes and their subclasses.

    `tf32` also registers a variant, `Tf32…`, that rounds operands to tf32, and `nondeterministic` variants,
    `Nondeterministic…`, that sum in any order. Variants have higher ranks: they run if they are allowed.
    """

    def register(cls: type[Kernel]) -> type[Kernel]:
        variants = [(cls, rank)]
        if tf32:
            variants.append((_variant(cls, "Tf32", tf32=True), rank + 4))
        if nondeterministic:
            variants += [(_variant(base, "Nondeterministic", deterministic=False), of + 1) for base, of in variants]
        for variant, variant_rank in variants:
            variant.backend, variant.rank = backend, variant_rank
            instance = variant()
            for op in ops:
                _kernels.setdefault(op, []).append(instance)
        return cls

    return register


def _variant(cls: type[Kernel], prefix: str, **attributes: bool) -> type[Kernel]:
    body = {"__doc__": f"{prefix} form of `{cls.__name__}`.", "__module__": cls.__module__, **attributes}
    return type(f"{prefix}{cls.__name__}", (cls,), body)


def registered_kernels(backends: Sequence[str]) -> list[Kernel]:
    """All kernels of these backends."""
    return list(
        dict.fromkeys(
            kernel for kernels_of_op in _kernels.values() for kernel in kernels_of_op if kernel.backend in backends
        )
    )


def kernels_for(op: type[Op], backends: Iterable[str]) -> list[Kernel]:
    """The registered kernels of these backends for an op class, highest rank first."""
    allowed = set(backends)
    accepted = [
        candidate for base in op.__mro__ for candidate in _kernels.get(base, ()) if candidate.backend in allowed
    ]
    return sorted(dict.fromkeys(accepted), key=lambda candidate: -candidate.rank)


class NoKernelError(Exception):
    """No kernel of the device accepts a node."""


def reject_reason(
    candidate: Kernel, op: Op, types: Sequence[TensorType], precision: Precision, *, deterministic: bool
) -> str | None:
    """Return why a kernel cannot run an op on operands of these types; None if it can.

    Values may be rounded as `precision` allows. Unless `deterministic`, rounding errors may vary between calls.
    """
    if candidate.tf32 and precision != Precision.TF32:
        return "it rounds to tf32, which `precision` does not allow"
    if candidate.required_dtypes and precision.storage_dtype not in candidate.required_dtypes:
        return f"its operands are {' or '.join(candidate.required_dtypes)}, but `precision` is {precision}"
    if deterministic and not candidate.deterministic:
        return "it is not deterministic, and `deterministic` is not false"
    if candidate.max_elements is not None and _most_elements(op, types) > candidate.max_elements:
        return f"it supports tensors of up to {candidate.max_elements:,} elements"
    return candidate.reject_reason(op, *types)


def _most_elements(op: Op, types: Sequence[TensorType]) -> int:
    """Number of elements of the largest operand or result."""
    results = op.infer(*types)
    return max(tensor_type.size for tensor_type in (*types, *(results if isinstance(results, tuple) else (results,))))


def kernel_candidates(
    node: Node, backends: Sequence[str], precision: Precision = Precision.FLOAT32, *,
    deterministic: bool = True, disabled: Mapping[str, str] | None = None,
) -> KernelCandidates:  # fmt: skip
    """The kernels of these backends that accept the node. The reference kernel is included only if there is no other.

    `precision` and `deterministic` as in `reject_reason`; `disabled` maps labels of kernels that must not be used to
    the reason. Raises `NoKernelError` with all reasons.
    """
    types = [value.type for value in node.inputs]
    accepting: list[Kernel] = []
    rejected: list[tuple[Kernel, str]] = []
    for candidate in kernels_for(type(node.op), backends):
        if accepting and candidate.rank <= 0:
            break
        reason = (disabled or {}).get(candidate.label) or reject_reason(
            candidate, node.op, types, precision, deterministic=deterministic
        )
        if reason is None:
            accepting.append(candidate)
        else:
            rejected.append((candidate, reason))
    if not accepting:
        reasons = "; ".join(f"{candidate.label}: {reason}" for candidate, reason in rejected) or "none is registered"
        raise NoKernelError(f"no kernel of {', '.join(backends)} runs {node.op.name}: {reasons}")
    return KernelCandidates(tuple(accepting), tuple(rejected))
