"""Class names and transforms in the metadata of ONNX models survive an import."""

from __future__ import annotations

import pytest

from netspec.exchange.formats.onnx.metadata import MAX_CHARACTERS, meanings

INPUTS, OUTPUTS = {"x": "x_in"}, {"scores": "scores_out", "other": "other"}


def test_names_in_the_model_become_names_of_the_net():
    metadata = {
        "netspec_classes": '{"scores": ["cat", "dog"]}',
        "netspec_functions": '{"scores": "softmax"}',
        "netspec_transforms": '[{"input": "x", "type": "Rescaling", "scale": 0.5}]',
    }
    assert meanings(metadata, INPUTS, OUTPUTS) == {
        "outputs": {"scores_out": {"classes": ["cat", "dog"], "function": "softmax"}},
        "transforms": [{"input": "x_in", "type": "Rescaling", "scale": 0.5}],
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("netspec_classes", "{"),
        ("netspec_classes", "[1]"),
        ("netspec_classes", '{"scores": [1, 2]}'),
        ("netspec_classes", "[" * 100_000),
        ("netspec_classes", '{"scores": ["' + "a" * MAX_CHARACTERS + '"]}'),
        ("netspec_functions", '{"scores": "exec"}'),
        ("netspec_functions", '{"scores": ["softmax"]}'),
        ("netspec_transforms", "{}"),
        ("netspec_transforms", '[{"input": "x"}]'),
    ],
    ids=range(9),
)
def test_texts_of_another_form_are_ignored(name, text):
    assert meanings({name: text}, INPUTS, OUTPUTS) == {}
