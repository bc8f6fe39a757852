"""The documented operators are those that occur in passing cases of ONNX's test suite, and in tests here."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.exchange.backend.suite import cases, why_excluded
from tests.exchange.documented_lists import listed
from tests.exchange.lift.models.contrib import MODELS
from tests.exchange.lift.models.quantized import LSTMS, QUANTIZED
from tests.exchange.onnx_operators import MICROSOFT

OPERATORS, SEQUENCES = "lift/test_operators.py", "lift/test_sequences.py"
SHOWN_ELSEWHERE = {
    "Bernoulli": OPERATORS, "GlobalLpPool": OPERATORS, "Multinomial": OPERATORS,
    "RandomNormal": OPERATORS, "RandomNormalLike": OPERATORS,
    "RandomUniform": OPERATORS, "RandomUniformLike": OPERATORS, "MaxRoiPool": "lift/test_computed_positions.py",
    "NonMaxSuppression": SEQUENCES, "SequenceMap": SEQUENCES, "SimplifiedLayerNormalization": "lift/models/contrib.py",
}  # fmt: skip
"""Operators that no passing case of ONNX's contains, and the test file that does."""


@pytest.fixture(scope="module")
def exercised() -> set[str]:
    """The operators in ONNX's cases that pass."""
    models = (
        case.model if case.model is not None else onnx.load(Path(case.model_dir or "", "model.onnx"))
        for suite, case in cases()
        if suite != "real" and why_excluded(case.name) is None
    )
    return {node.op_type for model in models for node in model.graph.node if not node.domain}


def test_an_operator_that_is_listed_is_read(exercised: set[str]) -> None:
    *onnx_lines, _, _, _ = listed("Import from ONNX")
    in_document = {name for line in onnx_lines for name in listed("Import from ONNX")[line]}
    assert sorted(in_document - exercised) == sorted(SHOWN_ELSEWHERE)
    assert (
        sorted(exercised & {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain} - in_document)
        == []
    )


@pytest.mark.parametrize("name", SHOWN_ELSEWHERE)
def test_an_operator_that_no_case_shows_is_tested(name: str) -> None:
    folder = Path(__file__).parents[1]
    assert f'"{name}"' in folder.joinpath(SHOWN_ELSEWHERE[name]).read_text(encoding="utf-8")


def test_contrib_operators_are_tested() -> None:
    models = [model for model, _ in (*MODELS.values(), *QUANTIZED.values(), *LSTMS.values())]
    contributed = {node.op_type for model in models for node in model.graph.node if node.domain == MICROSOFT}
    *_, own_line, _, _ = listed("Import from ONNX")
    assert sorted(contributed) == listed("Import from ONNX")[own_line]
