"""`Plan`: a convolution, or a gradient of one, as the library runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import islice
from typing import Any

from netspec.backends.cuda import launch
from netspec.backends.cuda.target import target
from netspec.backends.cudnn import library
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType
from netspec.layers.window import Window

NAMES = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT64: "DOUBLE",
    DType.FLOAT16: "HALF",
    DType.BFLOAT16: "BFLOAT16",
}
"""The library's words for element types."""
MOST_WORKSPACE = 1 << 28
"""Bytes that a plan may want: with more, one convolution would decide how large a batch may be."""
MOST_RACED = 8
"""Plans of a convolution that race."""


class Kind(Enum):
    """What is computed: results from images and kernels, and what the gradients of these are."""

    FORWARD = "forward"
    INPUT = "input"
    WEIGHT = "weight"


@dataclass(frozen=True)
class Tensor:
    """How a value lies."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @property
    def square(self) -> Tensor:
        """With two axes of places at least: those that are missing have size 1."""
        if len(self.shape) > 3:
            return self
        (n, c, *places), (by_n, by_c, *steps) = self.shape, self.strides
        along = max(self.strides)
        return Tensor((n, c, *(1,) * (2 - len(places)), *places), (by_n, by_c, *(along,) * (2 - len(places)), *steps),
                      self.dtype)  # fmt: skip


@dataclass(frozen=True)
class Convolution:
    """What is to be planned: `a` and `b` are image and kernel, gradient and kernel, or gradient and image."""

    kind: Kind
    window: Window
    a: Tensor
    b: Tensor
    y: Tensor
    biased: bool = False
    """Whether a vector along the channels, of y's element type, is added to y."""
    tf32: bool = False
    """Whether operands of float32 may be rounded so."""
    deterministic: bool = True
    """Whether sums must come out the same each time."""
    pick: str | None = None
    """The name of the plan; default: the one that the library thinks fastest."""

    @property
    def geometry(self) -> dict[str, list[int]]:
        """As the library has it."""
        window = self.window
        more = 2 - len(window.size)
        before, after = zip(*((0, 0) for _ in range(more)), *window.pads, strict=True)
        strides, dilation = (1,) * more + tuple(window.strides), (1,) * more + tuple(window.dilation)
        return {"pre_padding": [*before], "post_padding": [*after], "stride": [*strides], "dilation": [*dilation]}


class Described:
    """A convolution as the library sees it, and the plans that it thinks of, none of which is built.

    Raises `cudnnGraphNotSupportedError` where it has no code for it.
    """

    def __init__(self, what: Convolution, *, more: bool) -> None:
        """`more`: of all that the library has ideas of, not only what its first rule says."""
        cudnn = library.frontend()
        wide = getattr(cudnn.data_type, NAMES[what.a.dtype.computed])
        self.graph = graph = cudnn.pygraph(
            io_data_type=getattr(cudnn.data_type, NAMES[what.a.dtype]), intermediate_data_type=wide,
            compute_data_type=wide, **library.settings(),
        )  # fmt: skip
        a, b = (self._tensor(cudnn, one.square) for one in (what.a, what.b))
        self.inputs = [a, b]
        if what.kind is Kind.FORWARD:
            y = graph.conv_fprop(image=a, weight=b, **what.geometry)
        elif what.kind is Kind.INPUT:
            y = graph.conv_dgrad(loss=a, filter=b, **what.geometry)
        else:
            y = graph.conv_wgrad(image=b, loss=a, **what.geometry)
        made = what.y.square
        if what.biased:
            y.set_dim([*made.shape]).set_stride([*made.strides])
            channels, ones = made.shape[1], (1,) * (len(made.shape) - 2)
            vector = Tensor((1, channels, *ones), (channels, 1, *(channels for _ in ones)), made.dtype)
            self.inputs.append(self._tensor(cudnn, vector))
            y = graph.bias(input=y, bias=self.inputs[2])
        y.set_output(True).set_dim([*made.shape]).set_stride([*made.strides])
        y.set_data_type(getattr(cudnn.data_type, NAMES[made.dtype]))
        self.output = y
        graph.validate()
        graph.build_operation_graph()
        modes = cudnn.heur_mode
        graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK] if more else [modes.A, modes.FALLBACK])
        unwanted = [cudnn.numerical_note.NONDETERMINISTIC] if what.deterministic else []
        if what.a.dtype == DType.FLOAT32 and not what.tf32:
            unwanted += [cudnn.numerical_note.TENSOR_CORE, cudnn.numerical_note.DOWN_CONVERT_INPUTS]
        graph.deselect_numeric_notes(unwanted)
        graph.deselect_workspace_greater_than(MOST_WORKSPACE)

    def _tensor(self, cudnn: Any, one: Tensor) -> Any:
        kind = getattr(cudnn.data_type, NAMES[one.dtype])
        return self.graph.tensor(dim=[*one.shape], stride=[*one.strides], data_type=kind)

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

    def __init__(self, what: Convolution) -> None:
        super().__init__(what, more=what.pick is not None)
        cudnn, graph = library.frontend(), self.graph
        if what.pick is None:
            graph.check_support()
            graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
            self.workspace = int(graph.get_workspace_size())
            self._execute: Callable[[Mapping[int, int], int, int], None] = graph.execute
            return
        index = next((index for index, name in self.built() if name == what.pick), None)
        if index is None:
            raise RuntimeError(f"{what.pick} cannot be built")
        self.workspace = int(graph.get_workspace_size_plan_at_index(index))
        self._execute = lambda places, space, handle: graph.execute_plan_at_index(places, space, index, handle)

    def bind(self, inputs: Sequence[Any], output: Any, workspace: Any | None) -> Thunk:
        """A call on arrays."""
        address, execute = launch.engine.address, self._execute
        tensors = [*self.inputs, self.output]
        places: Mapping[int, int] = {
            tensor.get_uid(): address(array) for tensor, array in zip(tensors, (*inputs, output), strict=True)
        }
        scratch = 0 if workspace is None else address(workspace)
        handle, set_stream = library.handle(), library.frontend().set_stream
        alive = inputs, output, workspace  # `places` holds bare addresses

        def run(stream: int, _: object = alive) -> None:
            set_stream(handle, stream)
            execute(places, scratch, handle)

        return launch.engine.on_stream(run)


@dataclass(frozen=True)
class Assumed:
    """A plan that there would be on a GPU, as far as is known where nobody can be asked."""

    workspace: int = 0


@cache
def _planned(what: Convolution, cudnn: Any, gpu: str | None) -> Plan | str:
    try:
        return Plan(what)
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]


def planned(what: Convolution) -> Plan | Assumed | str:
    """The plan, made once for all equal convolutions; why there is none."""
    gpu = target()
    if gpu is not None and library.why_not_asked(gpu) is not None:
        return Assumed()
    return _planned(what, library.frontend(), gpu)


@cache
def _names(what: Convolution, cudnn: Any) -> tuple[str, ...]:
    return tuple(name for _, name in islice(Described(what, more=True).built(), MOST_RACED))


def names(what: Convolution) -> tuple[str, ...]:
    """Of the plans that are worth a race, which have been built: those that the library thinks fastest, by any rule.

    None for a GPU that is not there.
    """
    return _names(what, library.frontend()) if target() is None else ()
