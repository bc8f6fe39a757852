"""Results of OpenCV for prototxt and caffemodel files exported by netspec, recorded by `record_caffe.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from netspec.tools.verification.cases import SampleCase, cases
from tests.exchange.formats.caffe.catalogue import digest, written
from tests.exchange.nets import Net
from tests.exchange.samples import inputs_of, one_layer


def otherwise(case: SampleCase) -> str:
    """Return how OpenCV computes a sample differently from Caffe; empty if it does not."""
    fields = case.fields
    function = fields.get("activation")
    if ("beta" in fields and case.type == "Swish") or (isinstance(function, dict) and function["type"] == "swish"):
        return "its Swish has no beta"
    if case.type == "LocalResponseNormalization" and fields.get("k", 1) != 1:
        return "its LRN has a k of 1"
    if "dilation_rate" in fields and case.type.endswith("Transpose"):
        return "its Deconvolution has no dilation"
    return {"Log": "its Log has neither base, scale nor shift", "MVN": "it adds another epsilon",
            "Conv3D": "it pads all three axes alike"}.get(case.type, "")  # fmt: skip


@dataclass(frozen=True)
class CaffeFile:
    """A net of one layer as Caffe files, and its inputs: a single sample, since shapes are fixed in OpenCV."""

    id: str
    net: Net
    files: tuple[bytes, bytes]
    inputs: dict[str, Any]

    @property
    def digest(self) -> str:
        """Digest of the files and the inputs."""
        return digest(self.files, self.inputs)

    def expected(self) -> np.ndarray:
        """Return the outputs of the net itself."""
        return np.asarray(self.net.predict(self.inputs)["end"])


def caffe_files() -> Iterator[CaffeFile]:
    """All layer samples that Caffe can express, and that OpenCV computes like Caffe."""
    for case in cases("layer"):
        net = one_layer(case)
        files = None if otherwise(case) else written(net)
        if files is not None:
            yield CaffeFile(case.id, net, files, inputs_of(net, case.sample.ranges, size=1))
