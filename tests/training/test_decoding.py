"""Answers for outputs: the losses of a net determine the meaning of an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.data.pipeline import Learned
from netspec.schema.load import load_net
from netspec.training.inference.decoding import decoders_of
from netspec.training.preprocessing import PreprocessingRecord


def net(shape: list[int], target: dict[str, Any], *losses: dict[str, Any], layers: Any = None) -> Any:
    """A net whose output `y` has the shape of its input, next to a target."""
    return load_net(
        {
            "netspec": 1,
            "inputs": {"x": {"shape": shape}, "t": target},
            "layers": [{"type": "Power", "name": "y", "from": "x"}, *(layers or [])],
            "losses": [{"from": ["y", "t"], **loss} for loss in losses],
        }
    )


INT = {"shape": [], "dtype": "int32"}


def decode(spec: Any, output: Any, *, top: int = 1, learned: Learned | None = None, transforms: Any = None) -> Any:
    (decoder,) = decoders_of(spec, PreprocessingRecord(transforms, learned)).values()
    return decoder(np.asarray(output, np.float32), top)


NAMES = Learned(classes={"t": ["cat", "dog", "owl"]})


def test_logits_become_the_most_probable_classes_by_name() -> None:
    spec = net([3], INT, {"type": "SparseCategoricalCrossentropy", "from_logits": True})
    answers = decode(spec, np.log([[0.2, 0.7, 0.1], [0.5, 0.1, 0.4]]), top=2, learned=NAMES)
    assert answers["class"] == ["dog", "cat"]
    assert answers["class_2"] == ["cat", "owl"]
    np.testing.assert_allclose(answers["probability"], [0.7, 0.5], rtol=1e-6)  # float32 logits
    np.testing.assert_allclose(answers["probability_2"], [0.2, 0.4], rtol=1e-6)


def test_top_k_beyond_the_number_of_classes_gives_all() -> None:
    spec = net([3], INT, {"type": "SparseCategoricalCrossentropy", "from_logits": True})
    answers = decode(spec, [[1.0, 2.0, 3.0]], top=9)
    assert [answers[name][0] for name in ("class", "class_2", "class_3")] == [2, 1, 0]
    assert len(answers) == 6


def test_probabilities_are_not_normalized_again() -> None:
    spec = net([3], INT, {"type": "SparseCategoricalCrossentropy"})
    assert decode(spec, [[0.25, 0.5, 0.25]]) == {"class": [1], "probability": [0.5]}


def test_the_output_may_be_the_softmax_of_the_logits() -> None:
    softmax = {"type": "Softmax", "name": "p", "from": "y"}
    spec = net([3], INT, {"type": "SparseCategoricalCrossentropy", "from_logits": True}, layers=[softmax])
    assert decode(spec, [[0.25, 0.5, 0.25]], learned=NAMES) == {"class": ["dog"], "probability": [0.5]}


def test_the_last_layer_of_a_net_without_losses_decides_its_kind() -> None:
    dense = {"type": "Dense", "units": 3, "activation": "softmax"}
    assert decode(net([3], INT, layers=[dense]), [[0.0, 0.0, 1.0]]) == {"class": [2], "probability": [1.0]}
    dense = {"type": "Dense", "units": 1, "activation": "sigmoid"}
    assert decode(net([3], INT, layers=[dense]), [[0.25]]) == {"class": ["0"], "probability": [0.75]}
    assert decode(net([3], INT), [[1.0, 2.0, 3.0]]) == {
        "prediction_0": [1.0], "prediction_1": [2.0], "prediction_2": [3.0],
    }  # fmt: skip


def test_hinge_margins_are_reported_as_scores() -> None:
    assert decode(net([3], INT, {"type": "MultiMargin"}), [[0.5, -1.0, 3.0]]) == {"class": [2], "score": [3.0]}


def test_a_binary_prediction_has_the_probability_of_its_class() -> None:
    spec = net([1], {"shape": [1]}, {"type": "BinaryCrossentropy", "from_logits": True})
    answers = decode(spec, [[0.0], [np.log(3.0)]], learned=Learned(classes={"t": ["no", "yes"]}))
    assert answers["class"] == ["no", "yes"]
    np.testing.assert_allclose(answers["probability"], [0.5, 0.75], rtol=1e-6)  # float32 logits


def test_several_binary_predictions_name_all_classes_that_apply() -> None:
    spec = net([3], {"shape": [3]}, {"type": "BinaryCrossentropy"})
    answers = decode(spec, [[0.75, 0.25, 0.875], [0.0, 0.25, 0.125]], learned=NAMES)
    assert answers["classes"] == [["cat", "owl"], []]
    assert answers["probabilities"] == [[0.75, 0.25, 0.875], [0.0, 0.25, 0.125]]


def test_values_return_to_the_units_of_the_data() -> None:
    spec = net([1], {"shape": [1]}, {"type": "MeanSquaredError"})
    assert decode(spec, [[0.5], [-1.0]]) == {"prediction": [0.5, -1.0]}
    steps = (
        {"input": "t", "type": "Rescaling", "scale": 0.5, "offset": 1.0},
        {"input": "t", "type": "Normalization", "mean": [10.0], "variance": [4.0], "adapt": True},
    )
    answers = decode(spec, [[0.5], [-1.0]], transforms=steps)
    assert answers == {"prediction": [(0.5 * 2 + 10 - 1) / 0.5, (-1.0 * 2 + 10 - 1) / 0.5]}


def test_a_class_for_each_step_is_a_list_of_tags() -> None:
    target = {"shape": [2], "dtype": "int32"}
    spec = net([2, 3], target, {"type": "SparseCategoricalCrossentropy", "from_logits": True})
    scores = [[[0, 1, 0], [2, 0, 0]]]
    assert decode(spec, scores, learned=NAMES) == {"tags": [["dog", "cat"]]}


def test_tokens_of_a_text_are_decoded() -> None:
    vocabulary = {"type": "characters", "vocabulary": "abc", "padding": False, "unknown": False}
    learned = Learned(source={"tokenizer": vocabulary})
    target = {"shape": [3], "dtype": "int32"}
    spec = net([3, 3], target, {"type": "SparseCategoricalCrossentropy", "from_logits": True})
    assert decode(spec, np.eye(3)[None, ::-1], learned=learned) == {"text": ["cba"]}


def test_a_class_for_each_pixel_is_a_mask() -> None:
    target = {"shape": [2, 2], "dtype": "int32"}
    spec = net([3, 2, 2], target, {"type": "SparseCategoricalCrossentropy", "from_logits": True, "axis": 1})
    scores = np.moveaxis(np.eye(3)[[[0, 1], [2, 0]]], -1, 0)[None]
    answers = decode(spec, scores)
    (mask,) = answers["mask"]
    assert mask.dtype == np.uint8
    assert mask.tolist() == [[0, 1], [2, 0]]
    assert answers["shares"] == [{"0": 0.5, "1": 0.25, "2": 0.25}]


def test_frames_are_decoded_without_blanks_and_repetitions() -> None:
    target = {"shape": [3], "dtype": "int32"}
    spec = net([6, 3], target, {"type": "CTC"})
    best = [0, 1, 1, 0, 1, 2]
    assert decode(spec, np.eye(3)[best][None], learned=NAMES) == {"labels": [["dog", "dog", "owl"]]}


def test_an_output_of_many_elements_is_one_column() -> None:
    answers = decode(net([2, 2, 2], INT), np.zeros((1, 2, 2, 2)))
    assert list(answers) == ["prediction"]
    assert answers["prediction"][0].shape == (2, 2, 2)


@pytest.mark.parametrize("number", [0.0, 1.0])
def test_extreme_logits_give_probabilities(number: float) -> None:
    spec = net([2], INT, {"type": "SparseCategoricalCrossentropy", "from_logits": True})
    answers = decode(spec, [[1e4 * number, 0.0]])
    assert answers["probability"] == [1.0 if number else 0.5]
