"""Documentation of fields is read from the source, and only on request."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Literal

import pytest
from pydantic import Field

from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.spec import Spec


class Base(Spec):
    """A stand-in."""

    type: Literal["Base"] = "Base"
    """its name"""
    from_: str = Field(default="", alias="from")
    """what is read

    and more of it"""
    width: int = 1
    """of the base"""
    plain: int = 0

    def rule(self) -> None:
        """The docstring of a method is not the documentation of a field."""


class Child(Base):
    """A stand-in."""

    width: int = 2
    """of the child"""


def test_a_field_goes_by_its_name_in_yaml():
    assert field_docs(Base) == {"type": "its name", "from": "what is read\n\nand more of it", "width": "of the base"}


def test_a_child_has_its_own_texts_and_those_of_its_base():
    assert field_docs(Child) == {**field_docs(Base), "width": "of the child"}
    assert field_docs(LayerFields)["share"].startswith("Name of an earlier layer")


def test_classes_inside_functions_and_classes_are_found():
    class Outer(Spec):
        class Inner(Spec):
            size: int = 0
            """how large"""

    assert field_docs(Outer.Inner) == {"size": "how large"}
    assert field_docs(Outer) == {}


def test_class_without_source_has_no_field_docs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "made", ModuleType("made"))
    sourceless = type("Made", (Spec,), {"__module__": "made", "__annotations__": {"size": int}, "size": 0})
    gone = type("Gone", (Spec,), {"__module__": "gone", "__annotations__": {"size": int}, "size": 0})
    assert field_docs(sourceless) == field_docs(gone) == {}


def test_no_source_is_parsed_without_an_error():
    code = """
import ast
parsed, parse = [], ast.parse
ast.parse = lambda source, *more, **named: parsed.append(source) or parse(source, *more, **named)
from netspec.cli import main
from netspec.schema.bundled import zoo_root
assert main(["check", str(zoo_root() / "lenet_mnist" / "train.yaml")]) == 0
assert not any("class " in source for source in parsed if isinstance(source, str)), parsed
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
