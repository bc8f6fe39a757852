"""Layers that BVLC's Caffe has no words for, and why."""

from __future__ import annotations

from netspec.exchange.caffe.writing.writer import Layer, NoForm, Writer, writes

_WHY: dict[str, tuple[str, ...]] = {
    "it turns no axes; the Permute of other versions (SSD's) is not one of its layers": (
        "Permute", "Transpose",
    ),
    "its products of two inputs are those of single elements": (
        "AdditiveAttention", "Attention", "Dot", "Einsum", "EinsumDense", "GroupQueryAttention", "MatMul",
        "MultiHeadAttention",
    ),
    "its recurrent layers are LSTM and RNN, without convolutions": ("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"),
    "it has no layer around another": ("SpectralNormalization",),
    "its windows of poolings are all of one size, and their places are not given": (
        "ArgMaxPooling1D", "ArgMaxPooling2D", "ArgMaxPooling3D", "MaxUnpool", "RoiAlign",
    ),
    "it does not interpolate between places": ("GridSample", "Resize", "Resizing"),
    "it takes no elements by places, and puts none there": (
        "Col2Im", "Flip", "Gather", "GatherElements", "GatherND", "OneHot", "ReverseSequence", "ScatterElements",
        "ScatterND", "TensorScatter", "TopK", "Trilu",
    ),
    "all its numbers are floats": (
        "Cast", "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv",
        "QLinearMatMul", "QuantizeLinear",
    ),
    "it sums over whole axes alone": ("CumProd", "CumSum", "Det", "DFT", "STFT"),
    "it knows no positions": ("RotaryEmbedding",),
    "it has no masks": ("Masking",),
    "it has no formulas": ("Expression",),
    "its ArgMax gives no truth values": ("Hardmax",),
    "it has no layer for paddings of this kind": ("Pad",),
    "its Embed works one way": ("ReversibleEmbedding",),
    "its Parameter is no value of a sample": ("Parameter",),
}  # fmt: skip
_REASONS = {kind: why for why, kinds in _WHY.items() for kind in kinds}


@writes(*_REASONS)
def refused(w: Writer, link: Layer) -> None:
    """None of these can be."""
    kind = str(link.fields.type)
    raise NoForm(f"BVLC's Caffe has no {kind}: {_REASONS[kind]}")
