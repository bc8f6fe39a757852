"""cuBLASLt's C interface: constants and structures of `cublasLt.h` and `library_types.h`."""

from __future__ import annotations

import ctypes
import weakref
from enum import Enum, IntEnum
from functools import cache
from typing import Any, TypeAlias

from netspec.backends.cuda import launch
from netspec.backends.cuda.cublaslt.library import CublasLtLibrary, open_library
from netspec.errors import RunError
from netspec.graph.types import DType

Pointer: TypeAlias = ctypes.c_void_p


class CudaType(IntEnum):
    """`cudaDataType_t`."""

    FLOAT32 = 0
    FLOAT64 = 1
    FLOAT16 = 2
    BFLOAT16 = 14

    @classmethod
    def of(cls, dtype: DType) -> CudaType:
        """The library's number for an element type. Raises `KeyError` if there is none."""
        return cls[dtype.name]


class ComputeType(IntEnum):
    """`cublasComputeType_t`: the type of sums."""

    FLOAT32 = 68
    FAST_TF32 = 77
    """Operands may be rounded to tf32."""
    FLOAT64 = 70


class MatmulEpilogue(IntEnum):
    """`cublasLtEpilogue_t`."""

    DEFAULT = 1
    BIAS = 4
    """A vector with one element per row of D is added to each column."""


class ObjectAttribute(Enum):
    """Base class of attributes: the number, and the C type of the value."""

    @property
    def number(self) -> ctypes.c_int:
        """Number of the attribute."""
        return ctypes.c_int(self.value[0])

    def c_value(self, value: int) -> Any:
        """The value in C."""
        return self.value[1](value)


class MatmulDesc(ObjectAttribute):
    """`cublasLtMatmulDescAttributes_t`."""

    TRANSA = 3, ctypes.c_int32
    TRANSB = 4, ctypes.c_int32
    EPILOGUE = 7, ctypes.c_uint32
    BIAS_POINTER = 8, ctypes.c_void_p
    BIAS_DATA_TYPE = 26, ctypes.c_int32


class MatrixLayout(ObjectAttribute):
    """`cublasLtMatrixLayoutAttribute_t`."""

    BATCH_COUNT = 5, ctypes.c_int32
    STRIDED_BATCH_OFFSET = 6, ctypes.c_int64


class MatmulPreference(ObjectAttribute):
    """`cublasLtMatmulPreferenceAttributes_t`."""

    MAX_WORKSPACE_BYTES = 1, ctypes.c_uint64
    REDUCTION_SCHEME_MASK = 3, ctypes.c_uint32
    MIN_ALIGNMENT_A_BYTES = 5, ctypes.c_uint32
    MIN_ALIGNMENT_B_BYTES = 6, ctypes.c_uint32
    MIN_ALIGNMENT_C_BYTES = 7, ctypes.c_uint32
    MIN_ALIGNMENT_D_BYTES = 8, ctypes.c_uint32


ALIGNMENTS = tuple(preference for preference in MatmulPreference if preference.name.startswith("MIN_ALIGNMENT"))
"""Alignments of A, B, C and D."""
REDUCTION_IN_ORDER = 2
"""`CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: partial sums are stored and added in a separate step; sums that are not
split are always allowed. The excluded schemes add in the type of the result.
"""


class MatmulAlgorithm(ctypes.Structure):
    """`cublasLtMatmulAlgo_t`."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", MatmulAlgorithm),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLtError(RunError):
    """A call of cuBLASLt failed."""

    def __init__(self, library: CublasLtLibrary, function: str, code: int) -> None:
        name = library.functions.cublasLtGetStatusName
        name.restype = ctypes.c_char_p
        status = (name(ctypes.c_int(code)) or b"").decode() or f"status {code}"
        super().__init__(f"cuBLASLt cannot do this: {function} says {status}")


def call(library: CublasLtLibrary, function: str, *arguments: Any) -> None:
    """Call `cublasLt{function}` with ctypes objects. Raises `CublasLtError` unless it succeeds."""
    code = getattr(library.functions, f"cublasLt{function}")(*arguments)
    if code:
        raise CublasLtError(library, f"cublasLt{function}", code)


class CublasLtObject:
    """A C object that is destroyed together with its Python object."""

    def __init__(self, library: CublasLtLibrary, kind: str, *arguments: Any) -> None:
        """Created by `cublasLt{kind}Create`."""
        self.library, self.kind, self.pointer = library, kind, Pointer()
        call(library, f"{kind}Create", ctypes.byref(self.pointer), *arguments)
        # at exit nothing is destroyed: the order would be arbitrary
        weakref.finalize(self, getattr(library.functions, f"cublasLt{kind}Destroy"), self.pointer).atexit = False

    def set(self, attribute: ObjectAttribute, value: int) -> None:
        """Set an attribute."""
        stored = attribute.c_value(value)
        arguments = self.pointer, attribute.number, ctypes.byref(stored), ctypes.c_size_t(ctypes.sizeof(stored))
        call(self.library, f"{self.kind}SetAttribute", *arguments)


def matrix_layout(
    library: CublasLtLibrary, dtype: DType, rows: int, columns: int, step: int, count: int, offset: int
) -> CublasLtObject:
    """A batch of `count` matrices with columns `step` elements apart and matrices `offset` elements apart."""
    sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(step)
    layout = CublasLtObject(library, "MatrixLayout", ctypes.c_int(CudaType.of(dtype)), *sizes)
    if count > 1:
        layout.set(MatrixLayout.BATCH_COUNT, count)
        layout.set(MatrixLayout.STRIDED_BATCH_OFFSET, offset)
    return layout


@cache
def _context(library: CublasLtLibrary, device: int) -> CublasLtObject:
    return CublasLtObject(library, "")


def context() -> CublasLtObject:
    """The library's handle on the current GPU: one per process and GPU. Raises `CublasLtError` without a driver."""
    return _context(open_library(), launch.engine.device())
