"""A backend that stands for cuBLASLt and cuDNN: its kernels run in the current stream and ignore the stop flag."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from netspec.backends.backend import load_kernels
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.reference.kernels import ForwardKernel
from netspec.graph.fused import MultiTensor, inner_traits
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.shape import Reorder
from netspec.graph.types import TensorType
from netspec.graph.value import Node
from tests.backends.cuda.fake import Machine

machine = Machine()
"""The simulated GPU for which kernels are currently bound."""


@kernel(Op, backend="library", rank=2)
class Library(Kernel):
    """Computes products, and any op without another kernel, by reference code."""

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return 0.0 if inner_traits(node.op).is_contraction else 1.0

    def reject_reason(self, op: Op, *types: TensorType) -> str | None:
        return "an opaque layout" if isinstance(op, Reorder) and op.opaque else None

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        gpu = machine
        read = [(index, array) for index, array in enumerate(buffers.outputs) if array is not None]

        def run() -> None:
            with np.errstate(all="ignore"):
                results = node.op.forward(np, *buffers.inputs)
            for index, array in read:
                np.copyto(array, results[index] if len(buffers.outputs) > 1 else results)

        return lambda: gpu.submit(run)


@kernel(MultiTensor, backend="library_updates", rank=50)
class LibraryUpdates(Library):
    """Also computes updates, in place of other kernels; the stop flag does not skip them."""

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return 0.0


@kernel(MatMul, backend="array_code", rank=2)
class ArrayCode(ForwardKernel):
    """Computes products by NumPy code, like an array library."""


class LibraryDevice(CudaDevice):
    """A GPU with a library."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "library", "cuda")

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of the backends `library` and `reference`, and of `cuda` for all other ops."""
        load_kernels("cuda")
        return self.backends


class UpdatingDevice(LibraryDevice):
    """A GPU whose library writes states."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "library", "library_updates", "cuda")


class ArrayCodeDevice(LibraryDevice):
    """A GPU without a kernel library, on which array code computes products."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "array_code", "cuda")
