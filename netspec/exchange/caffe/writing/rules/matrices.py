"""Dense, Embedding and the vectors of positions: Caffe's matrices of InnerProduct are (out, in)."""

from __future__ import annotations

from netspec.exchange.caffe.writing.functions import finish, power, run
from netspec.exchange.caffe.writing.rules.recurrent import with_dense
from netspec.exchange.caffe.writing.writer import Blob, Layer, Writer, writes
from netspec.layers.positions import sines


@writes("Dense", steps=True)
def dense(w: Writer, link: Layer) -> None:
    """InnerProduct, over the last axis."""
    if link.sources[0] in w.held:
        with_dense(w, link, w.held[link.sources[0]])
        return
    one, rank = link.fields, len(w.shape(link.name))
    blobs = [w.array(link, "kernel", lambda kernel: kernel.T, one.kernel_initializer)]
    if one.use_bias:
        blobs.append(w.array(link, "bias", first=one.bias_initializer))
    param = {"num_output": one.units, "bias_term": one.use_bias, "axis": rank - 1}
    fillers = {name: w.filler(blob) for name, blob in zip(("weight_filler", "bias_filler"), blobs, strict=False)}
    w.layer(link.name, "InnerProduct", w.bottoms(link), [link.name], *blobs, of=link,
            params={"inner_product_param": param | fillers})  # fmt: skip
    finish(w, link, one.activation, -1)


@writes("PositionEmbedding", "SinePositionEncoding")
def positions(w: Writer, link: Layer) -> None:
    """Numbers that are the same in all samples: zeros (a Power), of which only the shape counts, and a Bias."""
    one, shape = link.fields, w.shape(link.name)
    if one.type == "PositionEmbedding":
        blob = w.array(link, "embeddings", lambda table: table[: shape[-2]], one.initializer)
    else:
        blob = Blob(sines(shape[-2], shape[-1], one.max_wavelength).astype("float32"))
    zeros = f"{link.name}_zeros"
    run(w, zeros, zeros, w.bottoms(link)[0], [power(0.0, 0.0)])
    param = {"axis": len(shape) - 2, "num_axes": 2, "filler": w.filler(blob)}
    w.layer(link.name, "Bias", [zeros], [link.name], blob, of=link, params={"bias_param": param})


@writes("Embedding", steps=True)
def embedding(w: Writer, link: Layer) -> None:
    """Rows by their numbers."""
    one = link.fields
    blob = w.array(link, "embeddings", first=one.embeddings_initializer)
    param = {"input_dim": one.input_dim, "num_output": one.output_dim, "bias_term": False,
             "weight_filler": w.filler(blob)}  # fmt: skip
    w.layer(link.name, "Embed", w.bottoms(link), [link.name], blob, of=link, params={"embed_param": param})
