"""Functions of each element, and arithmetic of several inputs of one shape."""

from __future__ import annotations

from collections.abc import Sequence

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing import functions
from netspec.exchange.caffe.writing.functions import MOST, Chain, run
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes


def _chain(w: Writer, link: Layer, chain: Chain) -> None:
    run(w, link.name, link.name, w.bottoms(link)[0], chain or [("Split", {})])


@writes("Activation", steps=True)
def activation(w: Writer, link: Layer) -> None:
    """The function's layers."""
    own = getattr(link.fields.activation, "axis", None)
    if own is not None and w.axis(link, own) == 0:
        raise NoForm("its functions of a sequence run along other axes than the steps")
    _chain(w, link, functions.steps(link.fields.activation, len(w.shape(link.name)), link.fields.axis))


@writes("ReLU", steps=True)
def relu(w: Writer, link: Layer) -> None:
    """ReLU, or Clip where there is a limit."""
    _chain(w, link, functions.rectified(link.fields))


@writes("LeakyReLU", steps=True)
def leaky(w: Writer, link: Layer) -> None:
    """ReLU with a slope."""
    _chain(w, link, [functions.relu(link.fields.negative_slope)])


@writes("ELU", steps=True)
def elu(w: Writer, link: Layer) -> None:
    """ELU."""
    _chain(w, link, [functions.elu(link.fields.alpha)])


@writes("BNLL", steps=True)
def bnll(w: Writer, link: Layer) -> None:
    """log(1 + eˣ)"""
    _chain(w, link, [("BNLL", {})])


@writes("Swish", steps=True)
def swish(w: Writer, link: Layer) -> None:
    """x · sigmoid(beta · x)"""
    _chain(w, link, [("Swish", {"swish_param": {"beta": link.fields.beta}})])


@writes("Softmax", steps=True)
def softmax(w: Writer, link: Layer) -> None:
    """Over one axis."""
    if len(link.sources) > 1 or len(link.fields.axis) != 1:
        raise NoForm("Caffe's Softmax runs over one axis, without a mask")
    _chain(w, link, [("Softmax", {"softmax_param": {"axis": w.axis(link, link.fields.axis[0])}})])


@writes("Power", steps=True)
def power(w: Writer, link: Layer) -> None:
    """(shift + scale · x) ^ power"""
    one = link.fields
    _chain(w, link, [("Power", {"power_param": {"power": one.power, "scale": one.scale, "shift": one.shift}})])


@writes("Exp", "Log", steps=True)
def exponential(w: Writer, link: Layer) -> None:
    """By a base, of shift + scale · x."""
    one = link.fields
    field = f"{one.type.lower()}_param"
    _chain(w, link, [(one.type, {field: {"base": one.base, "scale": one.scale, "shift": one.shift}})])


@writes("Abs", steps=True)
def magnitude(w: Writer, link: Layer) -> None:
    """|x|"""
    _chain(w, link, [("AbsVal", {})])


@writes("Clip", steps=True)
def clip(w: Writer, link: Layer) -> None:
    """Between two limits; where one is missing, the largest float32."""
    one = link.fields
    _chain(w, link, [functions.clip(-MOST if one.min is None else one.min, MOST if one.max is None else one.max)])


@writes("Threshold", steps=True)
def threshold(w: Writer, link: Layer) -> None:
    """1 above, else 0."""
    _chain(w, link, [("Threshold", {"threshold_param": {"threshold": link.fields.threshold}})])


@writes("Identity", "ActivityRegularization", steps=True)
def identity(w: Writer, link: Layer) -> None:
    """A copy."""
    _chain(w, link, [])


@writes("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
@writes("AlphaDropout", "GaussianDropout", "GaussianNoise", steps=True)
def noise(w: Writer, link: Layer) -> None:
    """What changes nothing in inference."""
    if w.training:
        raise NoForm(f"Caffe has no layer for {link.fields.type}")
    _chain(w, link, [])


@writes("Dropout", steps=True)
def dropout(w: Writer, link: Layer) -> None:
    """Each element by itself."""
    if link.fields.noise_shape is not None and w.training:
        raise NoForm("Caffe's Dropout draws for each element")
    _chain(w, link, [("Dropout", {"dropout_param": {"dropout_ratio": link.fields.rate}})] if link.fields.rate else [])


@writes("PReLU")
def prelu(w: Writer, link: Layer) -> None:
    """Slopes of channels, or a single one; of all places a factor of what is less than 0."""
    shape = w.shape(link.name)
    slopes = w.array(link, "alpha", first=link.fields.alpha_initializer)
    channels, rest = slopes.values.shape[0], slopes.values.shape[1:]
    if slopes.values.shape == shape[1:] and any(one != 1 for one in rest):
        _slopes_of_places(w, link, slopes)
        return
    if any(one != 1 for one in rest) or channels not in (1, shape[1]):
        raise NoForm("Caffe's slopes are those of channels, of all places, or a single one")
    shared = channels == 1 and shape[1] != 1
    values = slopes.values.reshape(() if shared else (channels,))
    blob = Blob(values, slopes.state, slopes.initializer)
    param = {"channel_shared": shared, "filler": w.filler(blob)}
    w.layer(link.name, "PReLU", w.bottoms(link), [link.name], blob, of=link, params={"prelu_param": param})


def _slopes_of_places(w: Writer, link: Layer, slopes: Blob) -> None:
    """max(x, 0) + slopes · min(x, 0)"""
    (bottom,), below, above = w.bottoms(link), f"{link.name}_below", f"{link.name}_above"
    run(w, below, below, bottom, [functions.power(-1.0), functions.relu(), functions.power(-1.0)])
    run(w, above, above, bottom, [functions.relu()])
    param = {"axis": 1, "num_axes": slopes.values.ndim, "filler": w.filler(slopes)}
    w.layer(f"{link.name}_slopes", "Scale", [below], [f"{link.name}_sloped"], slopes, of=link,
            params={"scale_param": param})  # fmt: skip
    w.layer(link.name, "Eltwise", [above, f"{link.name}_sloped"], [link.name],
            params={"eltwise_param": {"operation": "SUM"}})  # fmt: skip


@writes("Add", "Subtract", "Average", "Multiply", "Maximum", "Minimum", "WeightedSum", steps=True)
def merge(w: Writer, link: Layer) -> None:
    """Eltwise: sums with coefficients, products, maxima; minima are the negated maxima of the negated."""
    bottoms, count = w.bottoms(link), len(link.sources)
    if len({w.shape(source) for source in link.sources}) > 1:
        if _spread(w, link):
            return
        bottoms = [_tiled(w, link, number) for number in range(count)]
    coefficients: Sequence[float] | None = None
    match link.fields.type:
        case "Multiply":
            operation = "PROD"
        case "Maximum":
            operation = "MAX"
        case "Minimum":
            _minimum(w, link, bottoms)
            return
        case kind:
            operation = "SUM"
            coefficients = {
                "Subtract": [1.0, -1.0], "Average": [1 / count] * count,
                "WeightedSum": list(getattr(link.fields, "coefficients", ())),
            }.get(kind)  # fmt: skip
    if count == 1:  # Caffe's Eltwise needs two
        run(w, link.name, link.name, bottoms[0], [functions.power(coefficients[0] if coefficients else 1.0)])
        return
    param = {"operation": operation, "coeff": coefficients}
    w.layer(link.name, "Eltwise", bottoms, [link.name], params={"eltwise_param": param})


def _tiled(w: Writer, link: Layer, number: int) -> str:
    """A blob with as many numbers as the result has, of an input that is repeated along axes of size 1."""
    blob = w.blob(link.sources[number])
    for axis, (size, wanted) in enumerate(zip(w.shape(link.sources[number]), w.shape(link.name), strict=True)):
        if size != wanted:
            top = f"{link.name}_input_{number}_{axis}"
            w.layer(top, "Tile", [blob], [top], params={"tile_param": {"axis": axis, "tiles": wanted}})
            blob = top
    return blob


def _spread(w: Writer, link: Layer) -> bool:
    """A factor or a term for each channel (N, C, 1, 1): Caffe's Scale and Bias take it as (N, C); whether it is one."""
    kind = {"Multiply": "Scale", "Add": "Bias"}.get(link.fields.type)
    if kind is None or len(link.sources) != 2:
        return False
    large, small = sorted(link.sources, key=lambda source: w.shape(source) != w.shape(link.name))
    given, whole = w.shape(small), w.shape(large)
    count = max((axis for axis, size in enumerate(given) if size != 1), default=1) + 1
    if whole != w.shape(link.name) or len(given) != len(whole) or given[:count] != whole[:count]:
        return False
    shape = Message("BlobShape", dim=[0] * count)
    narrow = f"{link.name}_{kind.lower()}"
    w.layer(narrow, "Reshape", [w.blob(small)], [narrow], params={"reshape_param": {"shape": shape}})
    w.layer(link.name, kind, [w.blob(large), narrow], [link.name], params={f"{kind.lower()}_param": {"axis": 0}})
    return True


def _minimum(w: Writer, link: Layer, bottoms: list[str]) -> None:
    negated = [f"{link.name}_negated_{number}" for number in range(len(bottoms))]
    for bottom, top in zip(bottoms, negated, strict=True):
        run(w, top, top, bottom, [functions.power(-1.0)])
    most = f"{link.name}_negated"
    w.layer(most, "Eltwise", negated, [most], params={"eltwise_param": {"operation": "MAX"}})
    run(w, link.name, link.name, most, [functions.power(-1.0)])
