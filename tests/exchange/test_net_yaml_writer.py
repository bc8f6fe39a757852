"""Drafts of nets are written without defaults, and read again with the same meaning."""

from __future__ import annotations

import numpy as np

from netspec.exchange.net_yaml_writer import Draft, DraftLayer, clean, without_defaults
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.tree import Map


def test_a_draft_reads_as_a_person_would_write_it() -> None:
    kernel = np.zeros((8, 1, 3, 3), "float32")
    draft = Draft(
        "my net!",
        "x.h5 (Keras 2)\nnetspec: 2",
        inputs={"image": {"shape": [1, 28, 28]}, "label": {"shape": [], "dtype": "int32"}},
        layers=[
            DraftLayer(
                "conv",
                "Conv2D",
                {"filters": 8, "kernel_size": [3, 3], "strides": 1, "activation": "relu", "use_bias": False},
                ("image",),
                {"kernel": kernel},
            ),
            DraftLayer("flat", "Flatten", {}, ("conv",)),
            DraftLayer("logits", "Dense", {"units": 10, "activation": None}, ("flat",)),
            DraftLayer("both", "Add", {}, ("logits", "logits")),
        ],
        outputs=["both"],
        losses=[{"type": "SparseCategoricalCrossentropy", "from": ["both", "label"], "from_logits": True}],
    )
    text = draft.text()
    assert text.splitlines() == [
        "# Imported from x.h5 (Keras 2)?netspec: 2",
        "netspec: 1",
        "name: my_net",
        "inputs:",
        "  image: {shape: [1, 28, 28]}",
        "  label: {shape: [], dtype: int32}",
        "layers:",
        "  - {name: conv, type: Conv2D, filters: 8, kernel_size: [3, 3], activation: relu, use_bias: false}",
        "  - {name: flat, type: Flatten}",
        "  - {name: logits, type: Dense, units: 10}",
        "  - {name: both, type: Add, from: [logits, logits]}",
        "outputs: [both]",
        "losses:",
        "  - {type: SparseCategoricalCrossentropy, from: [both, label], from_logits: true}",
    ]
    assert list(draft.arrays()) == ["conv/kernel"]
    tree = parse_yaml(text, "net.yaml")
    assert isinstance(tree, Map)
    assert load_net(tree).layers[0].name == "conv"


def test_invalid_fields_are_kept_for_the_reader_to_report() -> None:
    assert without_defaults("Dense", {"units": -1, "use_bias": True}) == {"units": -1, "use_bias": True}
    assert without_defaults("Dense", {"use_bias": True, "units": 4}) == {"units": 4}


def test_names_have_valid_characters() -> None:
    assert clean("model/conv 1:0") == "model/conv_1:0"
    assert clean("/a/b") == "a/b"
    assert clean("-a") == "_-a"
