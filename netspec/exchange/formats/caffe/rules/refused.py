"""Layers of Caffe that are not imported, or that become no layer."""

from __future__ import annotations

from netspec.exchange.formats.caffe.importer import CaffeImporter, rule
from netspec.exchange.formats.caffe.wiring import CaffeNode, ValueRef
from netspec.exchange.unsupported import UnsupportedFeature

REFUSED = {
    "Python": "it runs code from another file, which netspec never does",
    "Filter": "the number of samples in its output depends on values, and netspec's batches have a fixed size",
    "RNNUnit": "it is a single step of an RNN: import the RNN layer that contains it",
    "Recurrent": "it is only the base class of LSTM and RNN",
}
"""The reasons of types that are refused."""


@rule(*REFUSED)
def refused(importer: CaffeImporter, node: CaffeNode) -> None:
    """Refuse the layer with its reason."""
    raise UnsupportedFeature(REFUSED[node.type])


@rule("Parameter")
def parameter(importer: CaffeImporter, node: CaffeNode) -> None:
    """Learned values without a batch: part of the Scale or Bias that reads them."""
    importer.parameters[ValueRef(node.key, 0, node.layer["top"][0])] = node


@rule("HDF5Output")
def output(importer: CaffeImporter, node: CaffeNode) -> None:
    """Left out: `netspec predict` writes outputs."""
    importer.notes.add(
        f"`{node.name}` is left out: `netspec predict` writes the outputs of a net",
        "{count} layers that write files are left out, since `netspec predict` does it",
        f"`{node.name}`",
    )
