"""Which values of a net are sequences to Caffe: (T, N, …) there, the steps before the samples, and (N, T, …) here."""

from __future__ import annotations

from collections.abc import Sequence

from netspec.exchange.caffe.writing.writer import Layer, of_steps

RECURRENT = ("LSTM", "SimpleRNN")


def sequences(layers: list[Layer]) -> frozenset[str]:
    """All values that hang together with recurrent layers: what these read, and what is computed of it step by step.

    None where one of these layers is no layer of Caffe's: then all steps are written one by one, in (N, T, …).
    """
    found: set[str] = set()
    size = -1
    while size < len(found):
        size = len(found)
        for layer in layers:
            own = _of_steps(layer)
            if own & found or layer.fields.type in RECURRENT:
                found |= own
    among = [layer for layer in layers if _of_steps(layer) & found]
    return frozenset(found) if all(_is_caffes(layer, layers) for layer in among) else frozenset()


def _of_steps(layer: Layer) -> set[str]:
    """The values of a layer that are sequences if one of them is."""
    made = {layer.name, *layer.outputs}
    if layer.fields.type in RECURRENT:
        return {layer.sources[0], *(made if layer.fields.return_sequences else ())}
    return {*layer.sources, *made}


def _is_caffes(layer: Layer, layers: Sequence[Layer]) -> bool:
    """Whether Caffe has a layer of single steps like this; its RNN is a SimpleRNN with a Dense and tanh behind it."""
    one = layer.fields
    if one.type not in RECURRENT:
        return of_steps(one.type)
    functions = [one.activation, *([one.recurrent_activation] if one.type == "LSTM" else [])]
    usual = [getattr(function, "type", "") for function in functions] == ["tanh", "sigmoid"][: len(functions)]
    if not usual or one.return_state or one.go_backwards or len(layer.sources) > 1:
        return False
    if one.type == "LSTM":
        return True
    readers = [other.fields for other in layers if {layer.name, *layer.outputs} & {*other.sources}]
    return [(each.type, getattr(each, "units", 0)) for each in readers] == [("Dense", one.units)] and (
        getattr(readers[0].activation, "type", "") == "tanh"
    )
