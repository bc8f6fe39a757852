"""Tables of fields: types in words, defaults, descriptions, nested mappings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, PositiveInt

from netspec.layers.initializers.base import Constant, Initializer
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.spatial import Size2D
from netspec.schema.specs.spec import Spec
from netspec.tools.reference.fields import as_written, inherited, inner_tables, sentence, table
from tests.tools.reference.generated import generated


def link(kind: str) -> str:
    return f"{kind}.md"


class Inner(Spec):
    """The inner spec."""

    size: int = 3
    """how large"""


class Base(Spec):
    """A stand-in."""

    name: str = ""
    """its name"""
    rate: float = 0.5
    """how fast"""


class Outer(Base):
    """A stand-in."""

    rate: float = 0.1
    units: PositiveInt
    """how many | of them"""
    share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """which part"""
    pool: Size2D = (2, 2)
    """how large"""
    mode: Literal["one", "off", "three"] | None = None
    """which way"""
    initial: Initializer = GlorotUniform()
    """first values"""
    several: list[Inner] = Field(default_factory=list)
    """more of it"""
    named: dict[str, float] = Field(default_factory=dict)
    """factors"""
    pair: tuple[int, bool] = (1, True)
    """two things"""


def rows() -> dict[str, list[str]]:
    lines = table(Outer, link)
    assert lines[:2] == ["| field | type | default | description |", "|---|---|---|---|"]
    cells = [line.strip("| ").replace("\\|", "¦").split(" | ") for line in lines[2:-1]]
    return {name.strip("`"): rest for name, *rest in cells}


@pytest.mark.parametrize(
    ("field", "cells"),
    {
        "name": ["string", '`""`', "Its name."],
        "rate": ["number", "`0.1`", "How fast."],
        "units": ["integer ≥ 1", "required", "How many ¦ of them."],
        "share": ["number ≥ 0 and < 1", "`0.0`", "Which part."],
        "pool": ["integer or list of integers", "`[2, 2]`", "How large."],
        "mode": ['`one`, `"off"` or `three`', "`null`", "Which way."],
        "initial": ["[initializer](initializer.md)", "`GlorotUniform`", "First values."],
        "several": ["list of mappings", "`[]`", "More of it."],
        "named": ["mapping of names to numbers", "`{}`", "Factors."],
        "pair": ["list of an integer and `true` or `false`", "`[1, true]`", "Two things."],
    }.items(),
)
def test_a_field_is_described_in_words(field: str, cells: list[str]):
    assert rows()[field] == cells


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (GlorotUniform(), "GlorotUniform"),
        (Constant(value=2.0), {"type": "Constant", "value": 2.0}),
        ((1, Inner(), Inner(size=1)), [1, {}, {"size": 1}]),
        (None, None),
    ],
)
def test_a_default_is_shown_as_it_would_be_written(value: Any, written: Any):
    assert as_written(value) == written


def test_fields_equal_to_the_base_are_inherited():
    assert inherited(Outer, Base) == {"name"}


def test_mappings_inside_have_tables_of_their_own():
    lines = list(inner_tables(Outer, link))
    assert lines[0] == "## Each of `several`\n"
    assert "The inner spec.\n" in lines
    assert "| `size` | integer | `3` | How large. |" in lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true: the prediction holds scores", "`true`: the prediction holds scores."),
        ("sizes, null for the input's size", "Sizes, `null` for the input's size."),
        ("y = a · x: a line", "y = a · x: a line."),
        ("factors (one per class)", "Factors (one per class)."),
        ("`zeros` or `ones`", "`zeros` or `ones`."),
        ("Ends already.", "Ends already."),
        ("", ""),
    ],
)
def test_descriptions_are_sentences(text: str, expected: str):
    assert sentence(text) == expected


@pytest.mark.slow
def test_only_required_fields_are_marked_as_required() -> None:
    lines = generated()["net.md"]
    assert "| `params` | mapping | none |" in lines
    assert "| `layers` | non-empty list of [layers](layers/README.md) | required |" in lines
    assert "list of [losses](losses.md)" in lines
