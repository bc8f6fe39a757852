"""`CudnnPlan`: an operation as planned by the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.cudnn import library
from netspec.backends.cuda.gpus import GPUS, target
from netspec.graph.execution_plan import ALIGNMENT as MEMORY_ALIGNMENT
from netspec.graph.kernel import Thunk
from netspec.graph.layout import Layout
from netspec.graph.types import DType, TensorType

NAMES = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT64: "DOUBLE",
    DType.FLOAT16: "HALF",
    DType.BFLOAT16: "BFLOAT16",
}
"""The library's names of element types."""
MAX_WORKSPACE = 1 << 28
"""Maximum workspace of a plan in bytes, so that no single operation limits the batch size."""
ALIGNMENT = 256
"""Alignment of a workspace, as CUDA allocates; planned memory is aligned to less."""


@dataclass(frozen=True)
class Tensor:
    """A value with its layout."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @classmethod
    def of(cls, kind: TensorType, layout: Layout) -> Tensor:
        """Describe an array of this type and layout."""
        return cls(kind.shape, layout.strides(kind), layout.stored_dtype(kind))

    @property
    def square(self) -> Tensor:
        """Return the tensor with at least two spatial axes: missing ones have size 1."""
        if len(self.shape) > 3:
            return self
        (n, c, *spatial), (by_n, by_c, *steps) = self.shape, self.strides
        along = max(self.strides)
        missing = 2 - len(spatial)
        return Tensor((n, c, *(1,) * missing, *spatial), (by_n, by_c, *(along,) * missing, *steps), self.dtype)

    def channels(self, dtype: DType) -> Tensor:
        """A vector along the channels."""
        channels, ones = self.shape[1], (1,) * (len(self.shape) - 2)
        return Tensor((1, channels, *ones), (channels, 1, *(channels for _ in ones)), dtype)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation to be planned. Equal operations share a plan."""

    max_measured_plans: ClassVar[int]
    """Maximum number of plans that autotuning measures."""
    needs_driver: ClassVar[bool] = False
    """Whether the library compiles the code, which needs a GPU's driver."""
    oldest: ClassVar[tuple[int, int]] = (0, 0)
    """Minimum compute capability that the library supports."""
    deterministic: bool = True
    """Whether results must be bit-identical from call to call."""
    tf32: bool = False
    """Whether float32 operands may be rounded to tf32."""
    pick: str | None = None
    """Name of the plan; default: the one that the library estimates to be fastest."""

    @property
    def dtype(self) -> DType:
        """Element type of the operands."""
        raise NotImplementedError  # abstract

    @property
    def max_workspace(self) -> int:
        """Maximum workspace in bytes."""
        return MAX_WORKSPACE

    @property
    def known_workspace(self) -> int:
        """Known workspace in bytes if the library cannot report it."""
        return 0

    def describe(self, to: GraphDescription) -> None:
        """Describe the operation to the library."""
        raise NotImplementedError  # abstract


class GraphDescription:
    """An operation described to the library, with its candidate plans, none of which is built.

    Raises `cudnnGraphNotSupportedError` if the library does not support it.
    """

    def __init__(self, operation: Operation, *, more: bool = False) -> None:
        """`more`: use all heuristics of the library, not only the first."""
        cudnn = library.frontend()
        wide = getattr(cudnn.data_type, NAMES[operation.dtype.compute_dtype])
        self.graph = graph = cudnn.pygraph(
            io_data_type=getattr(cudnn.data_type, NAMES[operation.dtype]), intermediate_data_type=wide,
            compute_data_type=wide, **library.settings(),
        )  # fmt: skip
        self.inputs = list[Any]()
        self.outputs = list[Any]()
        self.numbers = list[tuple[Any, Any]]()
        """Tensors of one element that the library reads from host memory, and that memory."""
        operation.describe(self)
        graph.validate()
        graph.build_operation_graph()
        modes = cudnn.heur_mode
        graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK] if more else [modes.A, modes.FALLBACK])
        unwanted = [cudnn.numerical_note.NONDETERMINISTIC] if operation.deterministic else []
        if operation.dtype == DType.FLOAT32 and not operation.tf32:
            unwanted += [cudnn.numerical_note.TENSOR_CORE, cudnn.numerical_note.DOWN_CONVERT_INPUTS]
        graph.deselect_numeric_notes(unwanted)
        graph.deselect_workspace_greater_than(operation.max_workspace)

    def read(self, described: Tensor) -> Any:
        """Add the next operand."""
        kind = getattr(library.frontend().data_type, NAMES[described.dtype])
        self.inputs.append(self.graph.tensor(dim=[*described.shape], stride=[*described.strides], data_type=kind))
        return self.inputs[-1]

    def written(self, tensor: Any, described: Tensor) -> None:
        """Add the next result: a tensor of the graph, and its layout."""
        tensor.set_output(True).set_dim([*described.shape]).set_stride([*described.strides])
        tensor.set_data_type(getattr(library.frontend().data_type, NAMES[described.dtype]))
        self.outputs.append(tensor)

    def number(self, value: float, rank: int) -> Any:
        """Add a scalar, shaped for operands of this rank."""
        kind, ones = library.frontend().data_type.FLOAT, [1] * rank
        tensor = self.graph.tensor(dim=ones, stride=ones, data_type=kind, is_pass_by_value=True)
        self.numbers.append((tensor, np.full(1, value, np.float32)))
        return tensor

    def built(self) -> Iterator[tuple[int, str]]:
        """Indices and names of the plans that can be built."""
        graph, produced = self.graph, set[str]()
        for index in range(graph.get_execution_plan_count()):
            name = graph.get_plan_name_at_index(index)
            if name in produced:
                continue
            try:
                graph.build_plan_at_index(index)
            except (library.frontend().cudnnGraphNotSupportedError, RuntimeError):  # excluded plans, for example
                continue
            produced.add(name)
            yield index, name


class CudnnPlan(GraphDescription):
    """A built plan: the one with the given name, or the first. Raises the same error as `GraphDescription`."""

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation, more=operation.pick is not None)
        cudnn, graph = library.frontend(), self.graph
        if operation.pick is None:
            graph.check_support()
            graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
            self.workspace = _workspace_bytes(int(graph.get_workspace_size()))
            self._execute: Callable[[Mapping[int, int], int, int], None] = graph.execute
            return
        index = next((index for index, name in self.built() if name == operation.pick), None)
        if index is None:
            raise RuntimeError(f"{operation.pick} cannot be built")
        self.workspace = _workspace_bytes(int(graph.get_workspace_size_plan_at_index(index)))
        self._execute = lambda addresses, space, handle: graph.execute_plan_at_index(addresses, space, index, handle)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any], workspace: Any | None) -> Thunk:
        """A call on arrays."""
        address, execute = launch.engine.address, self._execute
        tensors, arrays = [*self.inputs, *self.outputs], [*inputs, *outputs]
        addresses: Mapping[int, int] = {
            **{tensor.get_uid(): address(array) for tensor, array in zip(tensors, arrays, strict=True)},
            **{tensor.get_uid(): number.ctypes.data for tensor, number in self.numbers},
        }
        scratch = 0 if workspace is None else -(-address(workspace) // ALIGNMENT) * ALIGNMENT
        handle, set_stream = library.handle(), library.frontend().set_stream
        alive = arrays, workspace, self.numbers  # `addresses` contains plain numbers

        def run(stream: int, _: object = alive) -> None:
            set_stream(handle, stream)
            execute(addresses, scratch, handle)

        return launch.engine.on_stream(run)


def _workspace_bytes(nbytes: int) -> int:
    """Bytes in which `nbytes` fit once their start is aligned."""
    return nbytes + ALIGNMENT - MEMORY_ALIGNMENT if nbytes else 0


@dataclass(frozen=True)
class AssumedPlan:
    """The assumed plan for an absent GPU, if the library cannot be asked."""

    workspace: int = 0


@cache
def _unsupported_reason(operation: Operation, cudnn: Any, gpu: str | None) -> str | None:
    try:
        GraphDescription(operation).graph.check_support()
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]
    return None


def unsupported_reason(operation: Operation) -> str | None:
    """Return why the library supports no plan; None if it does. Nothing is compiled."""
    gpu = target()
    if gpu is not None and library.planning_caveat(gpu) is not None:
        return None
    return _unsupported_reason(operation, library.frontend(), gpu)


@cache
def _find_plan(operation: Operation, cudnn: Any, gpu: str | None) -> CudnnPlan | AssumedPlan | str:
    try:
        if gpu is not None and operation.needs_driver:
            return _unsupported_reason(operation, cudnn, gpu) or AssumedPlan(
                _workspace_bytes(operation.known_workspace)
            )
        return CudnnPlan(operation)
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]


def find_plan(operation: Operation) -> CudnnPlan | AssumedPlan | str:
    """The plan, cached for equal operations, or why there is none."""
    gpu = target()
    if gpu is not None and GPUS[gpu].capability < operation.oldest:
        return f"it has none for GPUs before {'.'.join(map(str, operation.oldest))}"
    if gpu is not None and library.planning_caveat(gpu) is not None:
        return AssumedPlan(_workspace_bytes(operation.known_workspace))
    return _find_plan(operation, library.frontend(), gpu)


def no_plan_reason(operation: Operation) -> str | None:
    """Return why there is no plan; None if there is one."""
    plan = find_plan(operation)
    return f"cuDNN has no plan: {plan}" if isinstance(plan, str) else None


def require_plan(operation: Operation) -> CudnnPlan | AssumedPlan:
    """The plan. Raises `RuntimeError` if there is none."""
    plan = find_plan(operation)
    if isinstance(plan, str):
        raise RuntimeError(no_plan_reason(operation))
    return plan


@cache
def _plan_names(operation: Operation, cudnn: Any) -> tuple[str, ...]:
    return tuple(
        name for _, name in islice(GraphDescription(operation, more=True).built(), operation.max_measured_plans)
    )


def plan_names(operation: Operation) -> tuple[str, ...]:
    """Names of the built plans that are worth measuring: the fastest by any heuristic of the library.

    None for an absent GPU.
    """
    return _plan_names(operation, library.frontend()) if target() is None else ()
