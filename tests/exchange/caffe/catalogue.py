"""Nets for the tests of Caffe's files: one of each layer's samples, and what is fed to them."""

from __future__ import annotations

from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from netspec.errors import InputError
from netspec.exchange.caffe.writing.files import write_caffe
from netspec.exchange.formats import Exportable
from tests.exchange.nets import Net, net_data
from tests.registry.cases import Case


def exportable(net: Net, train: Any = None) -> Exportable:
    """The net as writers are given it."""
    return Exportable(net.spec, net.states, net.graph, train)


def one_layer(case: Case) -> Net:
    """A net of the layer, and one behind it that has numbers for its output, whatever the layer does."""
    inputs = {
        f"x{index}": {"shape": list(shape[1:]), "dtype": dtype}
        for index, (shape, dtype) in enumerate(zip(case.sample.shapes, case.sample.dtypes, strict=True))
    }
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in case.fields.items()}
    end = {"name": "end", "type": "Activation", "activation": "tanh"}
    return Net.of(net_data({**fields, "name": "sample", "from": list(inputs)}, end, inputs=inputs))


def inputs_of(net: Net, ranges: Any = (), size: int = 3) -> dict[str, Any]:
    """Random numbers for each input."""
    random, found = np.random.default_rng(3), {}
    for name, one, given in zip_longest(net.spec.inputs, net.spec.inputs.values(), ranges):
        shape = (size, *one.shape)
        if one.dtype != "float32":
            array: Any = random.integers(0, 2, shape)
        elif given:
            array = random.uniform(given[0], given[1], shape)
        else:
            array = random.normal(size=shape)
        found[name] = array.astype(one.dtype)
    return found


def written(net: Net) -> tuple[bytes, bytes] | None:
    """The net in text and its weights, as they are written; None where Caffe has no form of it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.caffemodel"
        try:
            write_caffe(path, exportable(net))
        except InputError:
            return None
        return path.with_suffix(".prototxt").read_bytes(), path.read_bytes()


def digest(files: tuple[bytes, bytes], inputs: dict[str, Any]) -> str:
    """Another one where what is written or fed changes, but for the first line, which has netspec's version."""
    text, weights = files
    return sha256(b"".join([text.split(b"\n", 1)[1], weights, *map(bytes, inputs.values())])).hexdigest()[:16]
