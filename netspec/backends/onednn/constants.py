"""Constants of oneDNN's C interface, by their names in `dnnl_types.h`. Stable within version 3."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """`dnnl_status_t`: result of a call."""

    SUCCESS = 0
    OUT_OF_MEMORY = 1
    INVALID_ARGUMENTS = 2
    UNIMPLEMENTED = 3
    LAST_IMPL_REACHED = 4
    RUNTIME_ERROR = 5
    NOT_REQUIRED = 6
    INVALID_GRAPH = 7
    INVALID_GRAPH_OP = 8
    INVALID_SHAPE = 9
    INVALID_DATA_TYPE = 10


class DataType(IntEnum):
    """`dnnl_data_type_t`: element types."""

    F16 = 1
    BF16 = 2
    F32 = 3
    S32 = 4
    S8 = 5
    U8 = 6

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]


_ITEMSIZE = {
    DataType.F16: 2, DataType.BF16: 2, DataType.F32: 4, DataType.S32: 4, DataType.S8: 1, DataType.U8: 1,
}  # fmt: skip


class Tag(IntEnum):
    """`dnnl_format_tag_t`: layouts by name. Plain and permuted ones are described by strides instead.

    `ABCD…` are the axes in order; `B16` stores the second axis in blocks of 16, innermost: `nChw16c` is `ABCD_B16`.
    """

    ANY = 1
    """Chosen by the primitive."""
    ABCD_B16 = 78


class FormatKind(IntEnum):
    """`dnnl_format_kind_t`: kind of layout of a descriptor."""

    ANY = 1
    BLOCKED = 2
    """Strides, and possibly blocks."""


class Propagation(IntEnum):
    """`dnnl_prop_kind_t`: forward, with or without a backward computation, or backward."""

    FORWARD_TRAINING = 64
    FORWARD_INFERENCE = 96
    BACKWARD = 128


class AlgKind(IntEnum):
    """`dnnl_alg_kind_t`: function or method of a primitive."""

    CONVOLUTION_DIRECT = 0x1
    DECONVOLUTION_DIRECT = 0xA
    ELTWISE_RELU = 0x20
    ELTWISE_TANH = 0x21
    ELTWISE_ELU = 0x22
    ELTWISE_ABS = 0x24
    ELTWISE_LINEAR = 0x26
    ELTWISE_SOFT_RELU = 0x27
    ELTWISE_LOGISTIC = 0x29
    ELTWISE_EXP = 0x2A
    ELTWISE_GELU_ERF = 0x31
    POOLING_MAX = 0x1FF
    POOLING_AVG_INCLUDE_PADDING = 0x2FF
    POOLING_AVG_EXCLUDE_PADDING = 0x3FF
    LRN_ACROSS_CHANNELS = 0xAFF
    BINARY_ADD = 0x1FFF0
    BINARY_MUL = 0x1FFF1
    BINARY_MAX = 0x1FFF2
    BINARY_MIN = 0x1FFF3
    BINARY_DIV = 0x1FFF4
    BINARY_SUB = 0x1FFF5
    RESAMPLING_NEAREST = 0x2FFF0
    RESAMPLING_LINEAR = 0x2FFF1
    REDUCTION_MAX = 0x2FFF2
    REDUCTION_SUM = 0x2FFF4
    REDUCTION_MEAN = 0x2FFF6
    SOFTMAX_ACCURATE = 0x30000


USE_SCALE, USE_SHIFT = 0x2, 0x4
"""`dnnl_use_scale` and `dnnl_use_shift`: flags of normalizations."""
SCALE_AND_SHIFT = USE_SCALE | USE_SHIFT
"""All normalizations have both."""


class Arg(IntEnum):
    """`DNNL_ARG_*`: the arguments of a primitive. Recurrent layers reuse the values of other arguments."""

    SRC = 1
    SRC_1 = 2
    DST = 17
    WEIGHTS = 33
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    WORKSPACE = 64
    SCRATCHPAD = 80
    DIFF_SRC = 129
    DIFF_DST = 145
    DIFF_WEIGHTS = 161
    DIFF_BIAS = 169
    DIFF_SCALE = 255
    DIFF_SHIFT = 256


def multiple_src(index: int) -> int:
    """`DNNL_ARG_MULTIPLE_SRC + index`: a source of a concatenation or of a sum."""
    return 1024 + index


def post_op_src(index: int) -> int:
    """The second operand of the binary post-op at `index` in the chain."""
    return 32768 * (index + 1) | Arg.SRC_1


def post_op_weights(index: int) -> int:
    """The slope of the PReLU post-op at `index` in the chain."""
    return 32768 * (index + 1) | Arg.WEIGHTS


class Query(IntEnum):
    """`dnnl_query_t`: queries of a descriptor."""

    INPUTS = 3
    OUTPUTS = 4
    IMPLEMENTATION = 8
    EXEC_ARG = 255
    RANK = 256
    DIMS = 257
    DATA_TYPE = 258
    FORMAT_KIND = 262
    INNER_BLOCKS = 263
    INNER_SIZES = 264
    INNER_AXES = 265
    STRIDES = 14
