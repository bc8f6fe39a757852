"""Layers of Caffe that netspec has nothing for, and why."""

from __future__ import annotations

from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.wiring import Node, Ref

_WHY = {
    "Python": "it runs code that lies beside the file, which netspec never does",
    "Filter": "how many samples it gives on depends on their numbers: a batch has one size here",
    "RNNUnit": "one step of an RNN, which is a layer with all of its steps",
    "Recurrent": "it is the base of LSTM and RNN",
}


@rule(*_WHY)
def refused(net: Translator, node: Node) -> None:
    """None of these can be."""
    raise Unsupported(_WHY[node.type])


@rule("Parameter")
def parameter(net: Translator, node: Node) -> None:
    """Learned numbers without a batch: part of the Scale or Bias that reads them."""
    net.parameters[Ref(node.key, 0, node.layer["top"][0])] = node


@rule("HDF5Output")
def output(net: Translator, node: Node) -> None:
    """What is written to a file is what `netspec predict` writes."""
    net.note(f"`{node.name}` is left out: `netspec predict` writes the outputs of a net")
