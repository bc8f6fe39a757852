"""`Plan`: an operation as the library runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.gpus import GPUS
from netspec.backends.cuda.target import target
from netspec.backends.cudnn import library
from netspec.graph.kernel import Thunk
from netspec.graph.layout import Layout
from netspec.graph.plan import ALIGNMENT as MEMORY_ALIGNMENT
from netspec.graph.types import DType, TensorType

NAMES = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT64: "DOUBLE",
    DType.FLOAT16: "HALF",
    DType.BFLOAT16: "BFLOAT16",
}
"""The library's words for element types."""
MOST_WORKSPACE = 1 << 28
"""Bytes that a plan may want: with more, one operation would decide how large a batch may be."""
ALIGNMENT = 256
"""Of a workspace, as CUDA aligns what it allocates; memory that is planned is aligned to less."""


@dataclass(frozen=True)
class Tensor:
    """How a value lies."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @classmethod
    def of(cls, kind: TensorType, layout: Layout) -> Tensor:
        """A value as it lies."""
        return cls(kind.shape, layout.strides(kind), layout.stored(kind))

    @property
    def square(self) -> Tensor:
        """With two axes of places at least: those that are missing have size 1."""
        if len(self.shape) > 3:
            return self
        (n, c, *places), (by_n, by_c, *steps) = self.shape, self.strides
        along = max(self.strides)
        return Tensor((n, c, *(1,) * (2 - len(places)), *places), (by_n, by_c, *(along,) * (2 - len(places)), *steps),
                      self.dtype)  # fmt: skip

    def channels(self, dtype: DType) -> Tensor:
        """A vector along its channels."""
        channels, ones = self.shape[1], (1,) * (len(self.shape) - 2)
        return Tensor((1, channels, *ones), (channels, 1, *(channels for _ in ones)), dtype)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What is to be planned. Equal ones have the same plan."""

    most_raced: ClassVar[int]
    """Plans of it that race."""
    needs_driver: ClassVar[bool] = False
    """Whether the library compiles what runs it, for which it wants the driver of a GPU."""
    oldest: ClassVar[tuple[int, int]] = (0, 0)
    """Compute capability of the first GPUs that the library has code for."""
    deterministic: bool = True
    """Whether sums must come out the same each time."""
    tf32: bool = False
    """Whether operands of float32 may be rounded so."""
    pick: str | None = None
    """The name of the plan; default: the one that the library thinks fastest."""

    @property
    def dtype(self) -> DType:
        """The element type of its operands."""
        raise NotImplementedError  # abstract: subclasses say

    @property
    def most_workspace(self) -> int:
        """Bytes that a plan may want."""
        return MOST_WORKSPACE

    @property
    def known_workspace(self) -> int:
        """Bytes that a plan is known to want where the library can't say."""
        return 0

    def describe(self, to: Described) -> None:
        """Put it into the library's words."""
        raise NotImplementedError  # abstract: subclasses say


class Described:
    """An operation as the library sees it, and the plans that it thinks of, none of which is built.

    Raises `cudnnGraphNotSupportedError` where it has no code for it.
    """

    def __init__(self, what: Operation, *, more: bool = False) -> None:
        """`more`: of all that the library has ideas of, not only what its first rule says."""
        cudnn = library.frontend()
        wide = getattr(cudnn.data_type, NAMES[what.dtype.computed])
        self.graph = graph = cudnn.pygraph(
            io_data_type=getattr(cudnn.data_type, NAMES[what.dtype]), intermediate_data_type=wide,
            compute_data_type=wide, **library.settings(),
        )  # fmt: skip
        self.inputs = list[Any]()
        self.outputs = list[Any]()
        self.numbers = list[tuple[Any, Any]]()
        """Tensors of one element, which the library reads from the memory of the processor, and that memory."""
        what.describe(self)
        graph.validate()
        graph.build_operation_graph()
        modes = cudnn.heur_mode
        graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK] if more else [modes.A, modes.FALLBACK])
        unwanted = [cudnn.numerical_note.NONDETERMINISTIC] if what.deterministic else []
        if what.dtype == DType.FLOAT32 and not what.tf32:
            unwanted += [cudnn.numerical_note.TENSOR_CORE, cudnn.numerical_note.DOWN_CONVERT_INPUTS]
        graph.deselect_numeric_notes(unwanted)
        graph.deselect_workspace_greater_than(what.most_workspace)

    def read(self, one: Tensor) -> Any:
        """The next operand."""
        kind = getattr(library.frontend().data_type, NAMES[one.dtype])
        self.inputs.append(self.graph.tensor(dim=[*one.shape], stride=[*one.strides], data_type=kind))
        return self.inputs[-1]

    def written(self, tensor: Any, one: Tensor) -> None:
        """The next result: a tensor of the graph, and how it lies."""
        tensor.set_output(True).set_dim([*one.shape]).set_stride([*one.strides])
        tensor.set_data_type(getattr(library.frontend().data_type, NAMES[one.dtype]))
        self.outputs.append(tensor)

    def number(self, value: float, rank: int) -> Any:
        """A number beside operands of that rank."""
        kind, ones = library.frontend().data_type.FLOAT, [1] * rank
        made = self.graph.tensor(dim=ones, stride=ones, data_type=kind, is_pass_by_value=True)
        self.numbers.append((made, np.full(1, value, np.float32)))
        return made

    def built(self) -> Iterator[tuple[int, str]]:
        """The plans that can be built, one by one: their numbers and names."""
        graph, known = self.graph, set[str]()
        for index in range(graph.get_execution_plan_count()):
            name = graph.get_plan_name_at_index(index)
            if name in known:
                continue
            try:
                graph.build_plan_at_index(index)
            except (library.frontend().cudnnGraphNotSupportedError, RuntimeError):  # such as those that are not wanted
                continue
            known.add(name)
            yield index, name


class Plan(Described):
    """One that is built: the one of the name that is given, or else the first. Raises as `Described`."""

    def __init__(self, what: Operation) -> None:
        super().__init__(what, more=what.pick is not None)
        cudnn, graph = library.frontend(), self.graph
        if what.pick is None:
            graph.check_support()
            graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
            self.workspace = _room(int(graph.get_workspace_size()))
            self._execute: Callable[[Mapping[int, int], int, int], None] = graph.execute
            return
        index = next((index for index, name in self.built() if name == what.pick), None)
        if index is None:
            raise RuntimeError(f"{what.pick} cannot be built")
        self.workspace = _room(int(graph.get_workspace_size_plan_at_index(index)))
        self._execute = lambda places, space, handle: graph.execute_plan_at_index(places, space, index, handle)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any], workspace: Any | None) -> Thunk:
        """A call on arrays."""
        address, execute = launch.engine.address, self._execute
        tensors, arrays = [*self.inputs, *self.outputs], [*inputs, *outputs]
        places: Mapping[int, int] = {
            **{tensor.get_uid(): address(array) for tensor, array in zip(tensors, arrays, strict=True)},
            **{tensor.get_uid(): number.ctypes.data for tensor, number in self.numbers},
        }
        scratch = 0 if workspace is None else -(-address(workspace) // ALIGNMENT) * ALIGNMENT
        handle, set_stream = library.handle(), library.frontend().set_stream
        alive = arrays, workspace, self.numbers  # `places` holds bare addresses

        def run(stream: int, _: object = alive) -> None:
            set_stream(handle, stream)
            execute(places, scratch, handle)

        return launch.engine.on_stream(run)


def _room(nbytes: int) -> int:
    """Bytes in which so many can be aligned."""
    return nbytes + ALIGNMENT - MEMORY_ALIGNMENT if nbytes else 0


@dataclass(frozen=True)
class Assumed:
    """A plan that there would be on a GPU, as far as is known where nobody can be asked."""

    workspace: int = 0


@cache
def _unsupported(what: Operation, cudnn: Any, gpu: str | None) -> str | None:
    try:
        Described(what).graph.check_support()
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]
    return None


def unsupported(what: Operation) -> str | None:
    """Why the library has no idea how to do it; None where it has: nothing is compiled."""
    gpu = target()
    if gpu is not None and library.why_not_asked(gpu) is not None:
        return None
    return _unsupported(what, library.frontend(), gpu)


@cache
def _planned(what: Operation, cudnn: Any, gpu: str | None) -> Plan | Assumed | str:
    try:
        if gpu is not None and what.needs_driver:
            return _unsupported(what, cudnn, gpu) or Assumed(_room(what.known_workspace))
        return Plan(what)
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]


def planned(what: Operation) -> Plan | Assumed | str:
    """The plan, made once for all equal operations; why there is none."""
    gpu = target()
    if gpu is not None and GPUS[gpu].capability < what.oldest:
        return f"it has none for GPUs before {'.'.join(map(str, what.oldest))}"
    if gpu is not None and library.why_not_asked(gpu) is not None:
        return Assumed(_room(what.known_workspace))
    return _planned(what, library.frontend(), gpu)


def sure(what: Operation) -> Plan | Assumed:
    """The plan. Raises `RuntimeError` where there is none."""
    found = planned(what)
    if isinstance(found, str):
        raise RuntimeError(f"cuDNN has no plan: {found}")
    return found


@cache
def _names(what: Operation, cudnn: Any) -> tuple[str, ...]:
    return tuple(name for _, name in islice(Described(what, more=True).built(), what.most_raced))


def names(what: Operation) -> tuple[str, ...]:
    """Of the plans that are worth a race, which have been built: those that the library thinks fastest, by any rule.

    None for a GPU that is not there.
    """
    return _names(what, library.frontend()) if target() is None else ()
