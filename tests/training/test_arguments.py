"""A wrong argument in Python raises an `InputError` that says what is expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from tests.training.conftest import NET

X = np.zeros((3, 6))
WHOLE = "an integer of at least 0"


@pytest.fixture(scope="module")
def model() -> netspec.Model:
    return netspec.load(NET)


def only(caught: pytest.ExceptionInfo[InputError]) -> tuple[str, str | None, str | None, str | None]:
    (problem,) = caught.value.problems
    return problem.message, problem.expected, problem.got, problem.hint


@pytest.mark.parametrize(
    ("options", "message", "expected", "what_was_got", "hint"),
    [
        (
            {"precision": "flaot32"},
            "`precision` is unknown",
            "one of float32, float64, tf32, bfloat16, float16",
            "'flaot32'",
            "float32",
        ),
        ({"deterministic": "no"}, "`deterministic` is not a bool", "True or False", "'no'", None),
        ({"precision": 32}, "`precision` is unknown", "one of float32, float64, tf32, bfloat16, float16", "32", None),
        (
            {"precision": "int16"},
            "`precision` is unknown",
            "one of float32, float64, tf32, bfloat16, float16",
            "'int16'",
            None,
        ),
        ({"seed": -1}, "`seed` is wrong", WHOLE, "-1", None),
        ({"seed": 1.5}, "`seed` is wrong", WHOLE, "1.5", None),
        ({"seed": True}, "`seed` is wrong", WHOLE, "True", None),
        ({"seed": 2**63}, "`seed` is wrong", WHOLE, str(2**63), None),
        ({"device": 3}, "`device` is not a name", "a device that `netspec devices` lists", "3", None),
        ({"weights": 5}, "`weights` is not a path", "the path of a file, as str or Path", "5", None),
    ],
)
def test_options_of_load_are_checked(
    options: dict[str, Any], message: str, expected: str, what_was_got: str, hint: str | None
) -> None:  # fmt: skip
    with pytest.raises(InputError) as caught:
        netspec.load(NET, **options)
    assert only(caught) == (message, expected, what_was_got, hint and f"did you mean `{hint}`?")


@pytest.mark.parametrize("source", [5, None, b"net.yaml", ["net.yaml"]])
def test_objects_that_are_no_spec_are_refused(source: Any) -> None:
    for call in (netspec.load, netspec.train):
        with pytest.raises(InputError, match="a spec is given in another form") as caught:
            call(source)
        assert only(caught)[2] == repr(source)


@pytest.mark.parametrize("size", [0, -2, "2", 1.5, True])
def test_batch_sizes_are_checked(model: netspec.Model, size: Any) -> None:
    with pytest.raises(InputError) as caught:
        model.predict({"x": X}, batch_size=size)
    assert only(caught) == ("`batch_size` is wrong", "an integer of at least 1", repr(size), None)
    two: Any = np.int64(2)
    assert model.predict({"x": X}, batch_size=two)["logits"].shape == (3, 3)


def test_rows_of_different_lengths_are_refused(model: netspec.Model) -> None:
    with pytest.raises(InputError, match="`x` is not an array"):
        model.predict({"x": [[1, 2], [3]]})


@pytest.mark.parametrize("name", ["seed", "step"])
def test_seeds_and_steps_are_checked(model: netspec.Model, name: str) -> None:
    wrong: Any
    for wrong in (-1, "1", 2**63):
        with pytest.raises(InputError, match=f"`{name}` is wrong"):
            model.loss_and_gradients({"x": X, "label": [0, 1, 2]}, **{name: wrong})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3, complex), "has the wrong type"),
        (np.array(["1", "2", "3"]), "has the wrong type"),
        ([None] * 3, "has the wrong type"),
        (np.zeros(3, "M8[D]"), "has the wrong type"),
        ([[1], [1, 2]], "is not an array"),
        ([1e300] * 3, "has values that float32 cannot hold"),
        ([1, 2], "has the wrong shape"),
    ],
)
def test_values_of_parameters_are_checked(model: netspec.Model, value: Any, message: str) -> None:
    before = model.parameters["logits/bias"].tobytes()
    with pytest.raises(InputError, match=f"`logits/bias` {message}"):
        model.parameters["logits/bias"] = value
    assert model.parameters["logits/bias"].tobytes() == before


@pytest.mark.parametrize("value", [[1, 2, 3], [True, False, True], np.full(3, np.nan), np.full(3, -np.inf)])
def test_any_real_type_can_be_assigned_to_a_parameter(model: netspec.Model, value: Any) -> None:
    model.parameters["logits/bias"] = value
    np.testing.assert_array_equal(model.parameters["logits/bias"], np.asarray(value, np.float32))


def test_paths_of_weights_are_checked(model: netspec.Model, tmp_path: Path) -> None:
    for call in (model.save_weights, model.load_weights):
        with pytest.raises(InputError, match="is not a path"):
            call(5)  # type: ignore[arg-type]  # what this test is of
    model.save_weights(str(tmp_path / "w.h5"))
    model.load_weights(tmp_path / "w.h5")
