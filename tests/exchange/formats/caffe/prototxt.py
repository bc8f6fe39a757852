"""Helpers to import small Caffe nets in tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.compile import Compiler
from netspec.errors import InputError
from netspec.exchange.formats.caffe.proto.text import parse
from netspec.exchange.formats.caffe.reading import NetDraft, draft_net
from netspec.exchange.interface import ImportOptions
from netspec.schema.load import load_net
from netspec.schema.specs.net import NetSpec
from netspec.schema.yaml.flow_style import flow
from netspec.schema.yaml.reader import parse_yaml

INPUT = 'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {} }} }} }}\n'


def with_input(layers: str, *dims: int) -> str:
    """Return a prototxt whose input `x` has these sizes, the batch first."""
    return INPUT.format(" ".join(f"dim: {size}" for size in dims)) + layers


def drafted(text: str, weights: dict[str, list[Any]] | None = None, folder: Path = Path(), **options: Any) -> NetDraft:
    """Import the net in a prototxt as a draft."""
    net = parse(text, "NetParameter", "net.prototxt")
    return draft_net(net, ImportOptions(**options), weights=weights, weights_file="w.caffemodel", folder=folder)


def spec_of(net_draft: NetDraft) -> NetSpec:
    """Load the spec from the draft's YAML."""
    return load_net(parse_yaml(net_draft.draft.text(), "net.yaml"))


def lines(net_draft: NetDraft) -> list[str]:
    """Return the layers of the net file, as a line each."""
    return [flow(layer) for layer in parse_yaml(net_draft.draft.text(), "net.yaml")["layers"]]


def answers(net_draft: NetDraft, x: Any) -> list[Any]:
    """Return the outputs of the net for a batch, with the draft's weights."""
    spec = spec_of(net_draft)
    compiler = Compiler(spec)
    for name, array in net_draft.draft.arrays().items():
        compiler.states.assign(name, array)
    from netspec.training.inference.model import Model

    predictions = Model(spec, compiler).predict({next(iter(spec.inputs)): np.asarray(x)})
    return list(predictions.values())


PRODUCT = "inner_product_param { num_output: 3 }"
LABELLED = (
    'layer { name: "data" type: "Data" top: "x" top: "label" transform_param { crop_size: 2 force_gray: true } }\n'
)
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }\n'


def dense(name: str, bottom: str, more: str = "") -> str:
    return f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more} {PRODUCT} }}\n'


def failure(text: str, **options) -> str:
    with pytest.raises(InputError) as caught:
        drafted(text, **options)
    return caught.value.render()
