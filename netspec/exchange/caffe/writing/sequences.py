"""Which values of a net are sequences to Caffe: (T, N, …) there, the steps before the samples, and (N, T, …) here."""

from __future__ import annotations

from netspec.exchange.caffe.writing.writer import Layer

RECURRENT = ("LSTM", "SimpleRNN")


def sequences(layers: list[Layer]) -> frozenset[str]:
    """All values that hang together with recurrent layers: what these read, and what is computed of it step by step."""
    found: set[str] = set()
    size = -1
    while size < len(found):
        size = len(found)
        for layer in layers:
            own = _of_steps(layer)
            if own & found or layer.fields.type in RECURRENT:
                found |= own
    return frozenset(found)


def _of_steps(layer: Layer) -> set[str]:
    """The values of a layer that are sequences if one of them is."""
    made = {layer.name, *layer.outputs}
    if layer.fields.type in RECURRENT:
        return {layer.sources[0], *(made if layer.fields.return_sequences else ())}
    return {*layer.sources, *made}
