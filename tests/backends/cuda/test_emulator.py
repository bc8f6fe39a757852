"""Deliberately wrong kernels: the emulator reports the error of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from netspec.backends.cuda import launch, scatter_lists
from netspec.backends.cuda.kernels import ctc, linalg, local_response, reduction
from netspec.backends.cuda.launch import Launch, number, pointer, sizes
from netspec.backends.op_call import call, own_calls
from netspec.graph.kernel import Thunk
from netspec.graph.ops.elementwise import Neg
from netspec.graph.types import DType
from tests.backends.cuda import libraries
from tests.backends.cuda.calls import KERNELS, taken
from tests.backends.cuda.check import errors
from tests.backends.cuda.checks import Make, agrees, cases, keeps_nan
from tests.backends.cuda.emulator import Emulator, KernelError, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA C++ with")
THREADS, BLOCKS = 64, 2
SHARED = f"__shared__ float32 place[{THREADS}];\nconst int me = threadIdx.x;\n"
VALUE = "const float32 value = x[threadIdx.x];\n"
NO_BARRIER = "without a barrier between them|nothing has written"
WRONG = {
    "a read past the end": ("y[threadIdx.x] = x[threadIdx.x + 1];", r"reads 4 bytes outside.*`x` has 256.*offset 256"),
    "a write before the first element": ("y[(int)threadIdx.x - 1] = 1;", r"writes 4 bytes outside.*`y`.*offset -4"),
    "a write past a shared array": (
        SHARED + "float32 *const first = place;\nfirst[me + 1] = 1;", r"writes 4 bytes outside.*`place` has 256",
    ),
    "a write between the elements of a view": ("even[threadIdx.x] = 1;", r"writes 4 bytes outside.*`even`"),
    "a read of undefined memory": ("y[threadIdx.x] += 1;", "reads `y` at offset 0, which nothing has written"),
    "a read of undefined shared memory": (
        SHARED + "if (me < 63) place[me] = 1;\n__syncthreads();\ny[me] = place[me];",
        "reads `place` at offset 252, which",
    ),
    "a read of what another thread writes": (
        SHARED + "place[me] = x[me];\ny[me] = place[0];", "reads `place` at offset 0, which thread 0 writes without",
    ),
    "a write of what another thread reads": (
        SHARED + "place[me] = 1;\n__syncthreads();\ny[me] = place[0];\nplace[me] = 2;",
        "`place` at offset 0, which",
    ),
    "a write by all threads": ("if (blockIdx.x == 0) y[0] = 1;", "writes `y` at offset 0, which thread 0 writes"),
    "a write by all blocks": ("if (threadIdx.x == 0) y[0] = 1;", "writes `y` at offset 0, which another block writes"),
    "a read of what another block writes": (
        "if (threadIdx.x == 0) y[blockIdx.x] = 1;\n__syncthreads();\nif (blockIdx.x == 1) y[2 + threadIdx.x] = y[0];",
        "reads `y` at offset 0, which another block writes",
    ),
    "a write of what another block reads": (
        VALUE + "if (blockIdx.x == 1 && threadIdx.x == 0) ((float32 *)x)[0] = value;",
        "writes `x`, which is const",
    ),
    "a barrier that some threads miss": (
        "if (threadIdx.x < 32) __syncthreads();", "the threads of a block are not at the same barrier",
    ),
    "two barriers, each for some threads": (
        "if (threadIdx.x < 32) __syncthreads();\nelse __syncthreads();", "the threads of a block are not at the same",
    ),
    "a barrier for some lanes": ("if (threadIdx.x % 2) __syncthreads();", "the threads of a warp are not at the same"),
    "a shuffle for some lanes": (
        VALUE + "if (threadIdx.x % 32 < 9) y[threadIdx.x] = __shfl_sync(0xffffffff, value, 0);",
        "the threads of a warp are not at the same",
    ),
    "a shuffle whose mask omits lanes": (
        VALUE + "y[threadIdx.x] = __shfl_down_sync(0xffff, value, 1);", "a shuffle with a mask that omits",
    ),
    "a misaligned vector": (
        "const Four<float32> four = *(const Four<float32> *)(x + 1);\ny[threadIdx.x] = four.at[0];",
        "misaligned pointer",
    ),
    "a misaligned access": ("y[threadIdx.x] = *(const float32 *)((const uint8 *)x + 2);", "misaligned pointer"),
    "an overflow": ("y[threadIdx.x] = count * 2147483647;", "a product of integers overflows"),
    "a division by 0": ("y[threadIdx.x] = 7 / (count - 2);", "an integer division by 0"),
    "a shift by too much": ("y[threadIdx.x] = 1 << (30 + count);", "a shift by"),
    "a cast of a float that is too large": ("y[threadIdx.x] = (int)(factor * 1e12f);", "outside of the range"),
    "an index outside of a local array": (
        "float32 own[4] = {1, 2, 3, factor};\ny[threadIdx.x] = own[threadIdx.x + count];", "an index outside",
    ),
}  # fmt: skip


class Mutant(NamedTuple):
    """A kernel whose source is changed."""

    module: ModuleType
    text: str
    before: str
    after: str
    kernel: str
    error: str
    check: Make = agrees


MUTANTS = {
    "a piece of a reduction is not written": Mutant(
        reduction, "ROWS", "if (threadIdx.x == 0) y", "if (threadIdx.x == 0 && piece == 0) y",
        "ReduceKernel", "reads `x`.*which nothing has written",
    ),
    "a row of a reduction is not written": Mutant(
        reduction, "ROWS", "if (threadIdx.x == 0) y", "if (threadIdx.x == 0 && output != 1) y",
        "ReduceKernel", "elements of the results that are not written",
    ),
    "only the first unit of a block is computed": Mutant(
        reduction, "ROWS", "total = of_block", "if (unit != blockIdx.x) break;\n    total = of_block",
        "ReduceKernel", "elements of the results that are not written",
    ),
    "rows of a matrix are exchanged without a barrier": Mutant(
        linalg, "BODY", "if (most == 0) product = 0;\n        __syncthreads();", "if (most == 0) product = 0;",
        "InverseKernel", NO_BARRIER,
    ),
    "frames of CTC follow one another without a barrier": Mutant(
        ctc, "FORWARD", "+ emitted;\n        }\n        __syncthreads();", "+ emitted;\n        }",
        "CTCLossKernel", NO_BARRIER,
    ),
    "a local response reads squares without a barrier": Mutant(
        local_response, "FORWARD", "v * v;\n}\n__syncthreads();", "v * v;\n}", "LRNKernel", NO_BARRIER,
    ),
    "a sort exchanges its arrays without a barrier": Mutant(
        scatter_lists, "SORT", "from[i];\n    __syncthreads();", "from[i];", "ScatterRowsKernel", NO_BARRIER,
    ),
    "a reduction makes 0 of NaN": Mutant(
        reduction, "ROWS", "if (threadIdx.x == 0) y", "if (total != total) total = 0;\n    if (threadIdx.x == 0) y",
        "ReduceKernel", "NaN is lost", keeps_nan,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def emulator() -> Iterator[Emulator]:
    result = Emulator()
    before = launch.use(result)
    yield result
    launch.use(before)


@pytest.fixture(scope="module")
def wrong(emulator: Emulator) -> dict[str, Thunk]:
    """Wrong kernels, on arrays with one element per thread."""
    return {name: _bound(emulator, body) for name, (body, _) in WRONG.items()}


def _bound(emulator: Emulator, body: str) -> Thunk:
    x, y = np.ones(THREADS, np.float32), np.ones(THREADS, np.float32)
    even = np.ones(2 * THREADS, np.float32)[::2]
    parameters = [
        pointer("x", x), pointer("y", y, written=True), pointer("even", even, written=True), *sizes(2, count=2),
        number("factor", 3.0, DType.FLOAT32),
    ]  # fmt: skip
    run = Launch(parameters, body, BLOCKS, of_blocks=True, threads=THREADS).bind()

    def undefined() -> None:
        emulator.undefine(y)
        try:
            run()
        finally:
            emulator.define()

    return undefined


@pytest.mark.parametrize("name", WRONG)
def test_an_error_is_reported(name: str, wrong: dict[str, Thunk]) -> None:
    with pytest.raises(KernelError, match=WRONG[name][1]):
        wrong[name]()


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.slow
def test_a_broken_kernel_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> None:
    mutant = MUTANTS[name]
    text = getattr(mutant.module, mutant.text)
    assert mutant.before in text, "the kernel has changed: break it in another way"
    monkeypatch.setattr(mutant.module, mutant.text, text.replace(mutant.before, mutant.after))
    (kernel,) = (kernel for kernel in KERNELS if kernel.label == f"cuda:{mutant.kernel}")
    actual = list(errors(emulator, mutant.check, cases(kernel, list(own_calls(kernel)) or taken(kernel))))
    assert re.search(mutant.error, "\n".join(actual)), actual


def test_misaligned_vector_loads_are_detected(monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> None:
    monkeypatch.setattr(emulator, "address", lambda array: 0)  # which every vector may have
    (kernel,) = (kernel for kernel in KERNELS if kernel.label == "cuda:ElementwiseKernel")
    (actual,) = errors(emulator, agrees, cases(kernel, [call(Neg(), np.ones(64, np.float32))])[:1])
    assert "misaligned pointer" in actual


def _compile(*command: str) -> str:
    """Write what a compiler would write."""
    Path(command[-1]).touch()
    Path(f"{command[-1]}.o").touch()
    return ""


def test_processes_may_compile_the_same_kernels_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source is replaced, never truncated, because another process may be compiling it."""
    monkeypatch.setattr(libraries, "CACHE", tmp_path)
    monkeypatch.setattr(libraries, "_output", _compile)
    text = 'extern "C" __global__ void __launch_bounds__(1) netspec_a(float *x) { x[0] = 1; }'
    sources, readers = [], []
    for _ in range(2):
        both = libraries.Libraries("", ())
        both._compile({"netspec_a": text})
        (source,) = tmp_path.glob("*/all-*.cpp")
        readers.append(source.open(encoding="utf-8"))
        sources.append(source.stat().st_ino)
    assert len(set(sources)) == 2
    for reader in readers:
        with reader:
            assert "netspec_a" in reader.read()
