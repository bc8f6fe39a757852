"""Dense and Embedding: Caffe's matrices of InnerProduct are (out, in)."""

from __future__ import annotations

from netspec.exchange.caffe.writing.functions import finish
from netspec.exchange.caffe.writing.rules.recurrent import with_dense
from netspec.exchange.caffe.writing.writer import Layer, Writer, writes


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


@writes("Embedding", steps=True)
def embedding(w: Writer, link: Layer) -> None:
    """Rows by their numbers."""
    one = link.fields
    blob = w.array(link, "embeddings", first=one.embeddings_initializer)
    param = {"input_dim": one.input_dim, "num_output": one.output_dim, "bias_term": False,
             "weight_filler": w.filler(blob)}  # fmt: skip
    w.layer(link.name, "Embed", w.bottoms(link), [link.name], blob, of=link, params={"embed_param": param})
