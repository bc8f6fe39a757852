"""A stand-in for the package `cudnn` on the CPU: records graphs, and runs them with the reference code of ops.

It has the part of the frontend's interface that netspec calls, and checks arguments that the library does not check.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from itertools import count
from json import loads
from typing import Any

import ml_dtypes
import numpy as np

from netspec.backends.cuda.cudnn import library
from netspec.graph.ops.batch_normalization import BatchNormalization, BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.unary import Relu
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType

__version__ = "1.23.0"
WORKSPACE = 200
HANDLE = 77
data_type = Enum("data_type", "NOT_SET FLOAT DOUBLE HALF BFLOAT16")
heur_mode = Enum("heur_mode", "A B FALLBACK")
numerical_note = Enum("numerical_note", "TENSOR_CORE DOWN_CONVERT_INPUTS NONDETERMINISTIC")
build_plan_policy = Enum("build_plan_policy", "HEURISTICS_CHOICE ALL")
ELEMENTS = {"FLOAT": np.float32, "DOUBLE": np.float64, "HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16}
_uids = count(1)
UNWANTED = "eng0_k2=1"
PLANS = (UNWANTED, "eng1", "eng2_k2=5", "eng1", "eng3")
"""Names of the plans. One comes twice, as from the library; the second is the one that it expects to be fastest."""
executed: list[tuple[str, int]] = []
"""Name of each executed plan, and its number of steps."""


def forget() -> None:
    """Reset what netspec has cached about the package."""
    library._missing_reason.cache_clear()
    library._unusable_reason.cache_clear()
    library._planning_caveat.cache_clear()


class cudnnGraphNotSupportedError(Exception):  # noqa: N801  the library's name
    pass


def backend_version() -> int:
    return 92801


def create_handle() -> int:
    return HANDLE


def create_device_properties(text: str) -> Any:
    return loads(text)


def set_stream(handle: int, stream: int) -> None:
    assert (handle, stream) == (HANDLE, 0)


class Tensor:
    """A tensor of a graph."""

    def __init__(self, dim: Any = None, stride: Any = None, dtype: Any = None) -> None:
        self.dim, self.stride, self.dtype, self.output, self.uid = dim, stride, dtype, False, next(_uids)

    def set_output(self, whether: bool) -> Tensor:
        self.output = whether
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        assert self.dim in (None, dim), f"{dim} instead of {self.dim}"
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def set_data_type(self, dtype: Any) -> Tensor:
        self.dtype = dtype
        return self

    def get_data_type(self) -> Any:
        return self.dtype

    def get_uid(self) -> int:
        return self.uid

    def at(self, address: int) -> Any:
        """Return the array at an address."""
        kind = np.dtype(ELEMENTS[self.dtype.name])
        assert address % kind.itemsize == 0
        reach = 1 + sum((size - 1) * step for size, step in zip(self.dim, self.stride, strict=True))
        raw = (ctypes.c_uint8 * (reach * kind.itemsize)).from_address(address)
        flat = np.frombuffer(raw, kind)
        return np.lib.stride_tricks.as_strided(flat, self.dim, [step * kind.itemsize for step in self.stride])


class pygraph:  # noqa: N801  the library's name
    def __init__(
        self, name: str = "", io_data_type: Any = None, intermediate_data_type: Any = None,
        compute_data_type: Any = None, handle: int | None = None, device_property: Any = None,
        sm_version: int = 0,
    ) -> None:  # fmt: skip
        if device_property is None:
            assert handle == HANDLE
        else:
            assert device_property["deviceVer"] == 10 * sm_version
        self.compute = compute_data_type
        self.inputs: list[Tensor] = []
        self.steps: list[tuple[Any, tuple[Tensor, ...], list[Tensor]]] = []
        self.attends = False
        self.normalized: Tensor | None = None
        """The tensor that batch normalization reads, if there is a batch normalization."""
        self.done: list[str] = []
        self.unwanted = set[str]()

    def tensor(self, *, dim: list[int], stride: list[int], data_type: Any, is_pass_by_value: bool = False) -> Tensor:
        assert len(dim) == len(stride) >= 4, "the library wants four axes or five"
        assert not is_pass_by_value or (set(dim) == {1} and data_type is data_type.FLOAT)
        self.inputs.append(Tensor(dim, stride, data_type))
        return self.inputs[-1]

    def _step(self, run: Any, *inputs: Tensor, dim: list[int] | None = None) -> Tensor:
        result = Tensor(dim)
        self.steps.append((run, inputs, [result]))
        return result

    def _normalization(self, run: Any, x: Tensor, *inputs: Tensor) -> list[Tensor]:
        """Add a normalization with three results: one like x, and two vectors."""
        vector = [1, x.dim[1], *(1 for _ in x.dim[2:])]
        self.normalized = x
        result = [Tensor(x.dim), Tensor(vector), Tensor(vector)]
        for operand in inputs:
            assert operand.dim in (x.dim, vector, [1] * len(x.dim))
            assert operand.dtype == (x.dtype if operand.dim == x.dim and x.dim != vector else data_type.FLOAT)
        self.steps.append((run, (x, *inputs), result))
        return result

    def batchnorm(
        self, *, input: Tensor, scale: Tensor, bias: Tensor, in_running_mean: None, in_running_var: None,
        epsilon: Tensor, momentum: None,
    ) -> list[Any]:  # fmt: skip
        def run(x: Any, *vectors: Any) -> Any:
            gamma, beta, (added,) = map(np.ravel, vectors)
            y, mean, variance = BatchNormalizationTraining(1, float(added)).forward(np, x, gamma, beta)
            return y, mean, 1 / np.sqrt(variance + added)

        return [*self._normalization(run, input, scale, bias, epsilon), None, None]

    def batchnorm_backward(
        self, *, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor
    ) -> list[Tensor]:
        def run(x: Any, dy: Any, *vectors: Any) -> Any:
            gamma, mean, inverse = map(np.ravel, vectors)
            return BatchNormalizationGrad(1, 0.0).forward(np, x, gamma, mean, inverse**-2.0, dy)

        return self._normalization(run, input, grad, scale, mean, inv_variance)

    def batchnorm_inference(
        self, *, input: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor, bias: Tensor
    ) -> Tensor:
        def of(x: Any, *vectors: Any) -> Any:
            mean, inverse, gamma, beta = map(np.ravel, vectors)
            return BatchNormalization(1, 0.0).forward(np, x, gamma, beta, mean, inverse**-2.0)

        self.unread = self._step(of, input, mean, inv_variance, scale, bias, dim=input.dim)
        return self.unread

    def relu_backward(self, *, loss: Tensor, input: Tensor) -> Tensor:
        if input is not self.unread:
            raise cudnnGraphNotSupportedError("No valid engine configs for a ReLU of what is read")
        return self._step(lambda dy, y: np.where(Relu().forward(np, y) > 0, dy, 0), loss, input, dim=loss.dim)

    def conv_fprop(self, *, image: Tensor, weight: Tensor, **geometry: list[int]) -> Tensor:
        assert image.dtype == weight.dtype
        conv = convolution(weight.dim, image.dim[1] // weight.dim[1], **geometry)
        y = conv.infer(kind(image.dim), kind(weight.dim))
        return self._step(lambda x, w: conv.forward(np, x, w), image, weight, dim=[*y.shape])

    def conv_dgrad(self, *, loss: Tensor, filter: Tensor, **geometry: list[int]) -> Tensor:
        assert loss.dtype == filter.dtype

        def run(dy: Any, w: Any, dim: list[int]) -> Any:
            conv = convolution([*w.shape], dim[1] // w.shape[1], **geometry)
            assert conv.infer(kind(dim), kind(w.shape)).shape == dy.shape
            return ConvInputGrad(conv, kind(dim)).forward(np, dy, w)

        return self._step(run, loss, filter)

    def conv_wgrad(self, *, image: Tensor, loss: Tensor, **geometry: list[int]) -> Tensor:
        assert image.dtype == loss.dtype

        def run(x: Any, dy: Any, dim: list[int]) -> Any:
            conv = convolution(dim, x.shape[1] // dim[1], **geometry)
            assert conv.infer(kind(x.shape), kind(dim)).shape == dy.shape
            return ConvWeightGrad(conv, kind(dim)).forward(np, dy, x)

        return self._step(run, image, loss)

    def bias(self, *, input: Tensor, bias: Tensor) -> Tensor:
        assert bias.dim == [1, input.dim[1], *(1 for _ in input.dim[2:])]
        return self._step(lambda y, b: y + b, input, bias, dim=input.dim)

    def sdpa(
        self, *, q: Tensor, k: Tensor, v: Tensor, generate_stats: bool, bias: Tensor | None = None, **band: int
    ) -> list[Tensor]:
        assert generate_stats
        added, looked = (() if bias is None else (bias,)), looking(q, k, v, band)

        def means(q: Any, k: Any, v: Any, added: Any = 0) -> Any:
            scores = looked(q, k) + added
            greatest = scores.max(axis=-1, keepdims=True)
            e = exponential(scores, greatest)
            total = e.sum(axis=-1, keepdims=True)
            return e / total @ shared(v, q), greatest + np.log(total)

        return self._attention(means, q, k, v, *added, results=2)

    def sdpa_backward(
        self, *, q: Tensor, k: Tensor, v: Tensor, o: Tensor, dO: Tensor, stats: Tensor, bias: Tensor | None = None,
        use_deterministic_algorithm: bool, **band: int,
    ) -> list[Tensor]:  # fmt: skip
        looked = looking(q, k, v, band)
        assert o.dim == dO.dim
        self.ordered = use_deterministic_algorithm

        def gradients(q: Any, k: Any, v: Any, y: Any, total: Any, dy: Any, added: Any = 0) -> Any:
            weights = exponential(looked(q, k) + added, total)
            ds = weights * (dy @ shared(v, q).swapaxes(-1, -2) - (y * dy).sum(axis=-1, keepdims=True))
            dk, dv = ds.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dy
            dk, dv = (
                gradient.reshape(*x.shape[:2], -1, *x.shape[2:]).sum(axis=2) for gradient, x in ((dk, k), (dv, v))
            )
            return ds @ shared(k, q), dk, dv

        added = () if bias is None else (bias,)
        return self._attention(gradients, q, k, v, o, stats, dO, *added, results=3)

    def _attention(self, run: Any, *inputs: Tensor, results: int) -> list[Tensor]:
        self.attends = True
        self.steps.append((run, inputs, [Tensor() for _ in range(results)]))
        return self.steps[-1][2]

    def validate(self) -> None:
        for result in self.steps[-1][2]:
            assert result.output
            assert None not in (result.dim, result.stride, result.dtype), (
                "a result whose sizes the library does not know"
            )
        (first, *_), x = self.steps[-1][2], self.normalized
        if x is None and not self.attends and any(operand.dtype != first.dtype for operand in self.inputs):
            raise cudnnGraphNotSupportedError("No valid engine configs for results of another type\nand so on")
        if x is not None:
            assert (first.stride, first.dtype) == (x.stride, x.dtype)
            between = [operand.dtype for _, _, several in self.steps[:-1] for operand in several]
            if x.dim[1] % (16 // np.dtype(ELEMENTS[x.dtype.name]).itemsize) or set(between) - {x.dtype}:
                raise cudnnGraphNotSupportedError("No valid engine configs for Norm_")
        self.done.append("validate")

    def build_operation_graph(self) -> None:
        assert self.done == ["validate"]

    def create_execution_plans(self, modes: list[Any]) -> None:
        self.modes = modes
        assert modes in ([heur_mode.A, heur_mode.FALLBACK], [*heur_mode])

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        self.unwanted = {note.name for note in notes}
        assert self.unwanted <= {"NONDETERMINISTIC"} or self.inputs[0].dtype is data_type.FLOAT
        self.done.append("notes")

    def deselect_workspace_greater_than(self, nbytes: int) -> None:
        assert nbytes > WORKSPACE

    def check_support(self) -> None:
        assert self.done[:2] == ["validate", "notes"]

    def build_plans(self, policy: Any) -> None:
        assert policy is build_plan_policy.HEURISTICS_CHOICE
        self.done.append("built")

    def get_execution_plan_count(self) -> int:
        return len(PLANS)

    def get_plan_name_at_index(self, index: int) -> str:
        return PLANS[index]

    def build_plan_at_index(self, index: int) -> None:
        assert self.modes == [*heur_mode]
        if PLANS[index] == UNWANTED:
            raise cudnnGraphNotSupportedError("Deselecting execution plan")
        self.done.append(PLANS[index])

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        assert PLANS[index] in self.done
        return WORKSPACE

    def execute_plan_at_index(self, addresses: dict[int, int], workspace: int, index: int, handle: int) -> None:
        assert PLANS[index] in self.done
        executed.append((PLANS[index], len(self.steps)))
        self._run(addresses, workspace, handle)

    def get_workspace_size(self) -> int:
        return WORKSPACE

    def execute(self, addresses: dict[int, int], workspace: int, handle: int) -> None:
        assert self.done[-1] == "built"
        executed.append((PLANS[1], len(self.steps)))
        self._run(addresses, workspace, handle)

    def _run(self, addresses: dict[int, int], workspace: int, handle: int) -> None:
        assert handle == HANDLE
        assert workspace % 256 == 0
        ctypes.memset(workspace, 0xFF, WORKSPACE)
        values = {operand.uid: operand.at(addresses[operand.uid]) for operand in self.inputs}
        wide = ELEMENTS[self.compute.name]
        for run, inputs, several in self.steps:
            arguments = [values[operand.uid].astype(wide) for operand in inputs]
            if len(several) > 1:
                values.update(zip([result.uid for result in several], run(*arguments), strict=True))
            else:
                (result,) = several
                values[result.uid] = run(*arguments, result.dim) if run.__name__ == "run" else run(*arguments)
        for result in several:
            target = result.at(addresses[result.uid])
            assert not any(np.may_share_memory(target, operand.at(addresses[operand.uid])) for operand in self.inputs)
            target[...] = values[result.uid].reshape(result.dim)


def kind(dim: Any) -> TensorType:
    return TensorType(tuple(dim), DType.FLOAT32)


def looking(q: Tensor, k: Tensor, v: Tensor, band: dict[str, int]) -> Any:
    """Return the function of the scores; scores outside of the band are -inf."""
    for operand in (q, k, v):
        assert operand.dtype in (data_type.BFLOAT16, data_type.HALF)
        if operand.dim[3] % 8 or operand.stride[3] != 1:
            raise cudnnGraphNotSupportedError("hidden_dim should be multiple of 8")
    right, left = band.pop("diagonal_band_right_bound", None), band.pop("diagonal_band_left_bound", None)
    assert not band
    rows, columns = np.arange(q.dim[2])[:, None], np.arange(k.dim[2])
    if left is not None and len(rows) > len(columns):
        raise cudnnGraphNotSupportedError("Sliding window attention is only supported with max_s_q <= max_s_kv.")
    visible = (right is None or columns <= rows + right) & (left is None or columns + left > rows)
    return lambda q, k: np.where(visible, q @ shared(k, q).swapaxes(-1, -2), -np.inf)


def exponential(scores: Any, less: Any) -> Any:
    """Return exp(scores - less) as kernels compute it: by a power of two, rounding product and difference once."""
    log2e = np.float32(np.log2(np.e))
    products = scores.astype(np.float64) * log2e  # exact: both factors have 24 bits
    return np.exp2((products - np.float32(less * log2e)).astype(np.float32))


def shared(x: Any, q: Any) -> Any:
    """Return keys or values repeated for each head of q."""
    return np.repeat(x, q.shape[1] // x.shape[1], axis=1)


def convolution(
    kernel: list[int], groups: int, *, pre_padding: list[int], post_padding: list[int], stride: list[int],
    dilation: list[int],
) -> Conv:  # fmt: skip
    pads = tuple(zip(pre_padding, post_padding, strict=True))
    return Conv(Window(tuple(kernel[2:]), tuple(stride), pads, tuple(dilation)), groups)
