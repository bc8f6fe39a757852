"""Fields in words: what a reader sees of a type, a default, a mapping inside a mapping."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, PositiveInt

from netspec.layers.initializers.base import Constant, Initializer
from netspec.layers.initializers.variance_scaling import GlorotUniform
from netspec.layers.spatial import Size2D
from netspec.schema.specs.spec import Spec
from netspec.tools.reference import pages
from netspec.tools.reference.fields import as_written, inherited, inner_tables, table


def link(kind: str) -> str:
    return f"{kind}.md"


class Inner(Spec):
    """What is inside."""

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
    assert lines[:2] == ["| field | value | default | |", "|---|---|---|---|"]
    cells = [line.strip("| ").replace("\\|", "¦").split(" | ") for line in lines[2:-1]]
    return {name.strip("`"): rest for name, *rest in cells}


@pytest.mark.parametrize(
    ("field", "told"),
    {
        "name": ["text", '`""`', "its name"],
        "rate": ["number", "`0.1`", "how fast"],
        "units": ["whole number ≥ 1", "needed", "how many ¦ of them"],
        "share": ["number ≥ 0 and < 1", "`0.0`", "which part"],
        "pool": ["whole number or list of whole numbers", "`[2, 2]`", "how large"],
        "mode": ['`one`, `"off"` or `three`', "`null`", "which way"],
        "initial": ["[initializer](initializer.md)", "`GlorotUniform`", "first values"],
        "several": ["list of mappings", "`[]`", "more of it"],
        "named": ["mapping of names to numbers", "`{}`", "factors"],
        "pair": ["list of whole number, `true` or `false`", "`[1, true]`", "two things"],
    }.items(),
)
def test_a_field_is_told_in_words(field: str, told: list[str]):
    assert rows()[field] == told


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (GlorotUniform(), "GlorotUniform"),
        (Constant(value=2.0), {"type": "Constant", "value": 2.0}),
        ((1, Inner(), Inner(size=1)), [1, {}, {"size": 1}]),
        (None, None),
    ],
)
def test_a_default_is_as_it_would_be_written(value: Any, written: Any):
    assert as_written(value) == written


def test_what_is_as_in_the_base_is_not_told_again():
    assert inherited(Outer, Base) == {"name"}


def test_mappings_inside_have_tables_of_their_own():
    told = list(inner_tables(Outer, link))
    assert told[0] == "## each of `several`\n"
    assert "What is inside.\n" in told
    assert "| `size` | whole number | `3` | how large |" in told


def test_only_required_fields_are_marked_as_needed() -> None:
    lines = "\n".join(pages()["net.md"].splitlines())
    assert "| `params` | mapping | none |" in lines
    assert "| `layers` | list of 1 or more [layers](layers/README.md) | needed |" in lines
    assert "list of [losses](losses.md)" in lines
