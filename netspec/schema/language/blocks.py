"""What a file may say of layers that are written once and stand for several: blocks, groups, repetitions, conditions.

`schema/expand.py` puts plain layers in their place before a net is validated. The classes here say what definitions
look like, to find what is wrong with them where they stand and for the JSON Schema; a finished spec holds none.
"""

from __future__ import annotations

import keyword
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from netspec.schema.specs.field_types import Names, as_names
from netspec.schema.specs.spec import Spec, describe, problem

CALL_FIELDS = ("type", "name", "from", "repeat", "if", "share", "trainable")
"""Fields of a call of a block, in addition to the block's parameters."""
GROUP_FIELDS = ("name", "from", "repeat", "if", "layers")
"""What a group of layers may say."""


def _used_up(value: Any) -> None:
    """Refuse what only means something in a document, whose layers are written out before they are validated."""
    if value is not None:
        raise problem(
            "this is taken from a spec alone", expected="a net file, or a mapping with what it would say",
            got="a layer made in Python", hint="in Python write a loop, or a condition",
        )  # fmt: skip


Repeat = Annotated[Any, BeforeValidator(_used_up), WithJsonSchema({"x-netspec-shared": "repeat"})]
"""How often: a number, or variables with the values that they go through."""
Condition = Annotated[Any, BeforeValidator(_used_up), WithJsonSchema({"x-netspec-shared": "condition"})]
"""Whether the layer is there."""

BLOCK_NAME = r"^[a-z][A-Za-z0-9_\-]*$"
"""Blocks begin with a small letter, types of layers with a capital: a layer to come can't take the name of a block."""
BlockName = Annotated[str, WithJsonSchema({"type": "string", "pattern": BLOCK_NAME})]

Entry = Annotated[Any, WithJsonSchema({"x-netspec-registry": "layer", "x-netspec-entry": True})]
"""What may stand in a list of layers: a layer, a call of a block, a group of layers, an included file."""


def is_variable(name: str) -> bool:
    """Whether an expression can use the name."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _params(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if name in CALL_FIELDS:
            raise problem(
                f"a parameter can't be called `{name}`: every call may say it of itself", field=name,
                expected="another name",
            )  # fmt: skip
        if not is_variable(name):
            raise problem(
                f"`{name}` can't be the name of a parameter", field=name,
                expected="letters, digits and _, not starting with a digit",
            )  # fmt: skip
    return value


def _inputs(value: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for index, name in enumerate(value) if name in value[:index]), None)
    if twice is not None:
        raise problem(f"two inputs are called `{twice}`", expected="names that differ")
    return value


def _outputs(value: Any) -> Any:
    if isinstance(value, dict):
        if value and all(isinstance(one, str) for one in value.values()):
            return dict(value)
        raise problem(
            "not names of layers", expected="a mapping such as `{skip: conv2, out: pool}`", got=describe(value)
        )
    return as_names(value)


Outputs = Annotated[
    tuple[str, ...] | dict[str, str],
    BeforeValidator(_outputs, json_schema_input_type=str | list[str] | dict[str, str]),
]


class BlockSpec(Spec):
    """Layers under a name, with parameters: what a layer of that type stands for."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "parameters": "here it is `params`",
        "args": "here it is `params`",
        "defaults": "a default is written with the parameter: `params: {filters, strides: 1}`",
        "input": "here it is `inputs`",
        "output": "here it is `outputs`",
        "from": "what a block reads goes by the names of its `inputs`",
    }

    description: str = ""
    """what the block is for"""
    params: Annotated[dict[str, Any], AfterValidator(_params)] = Field(default_factory=dict)
    """its parameters with their defaults, for `${…}` inside; one without a value must be given"""
    inputs: Annotated[Names, AfterValidator(_inputs)] = ("input",)
    """what its layers call the things that it reads, in the order of `from`"""
    layers: list[Entry] = Field(min_length=1)
    """its layers; the first reads the first input"""
    outputs: Outputs | None = None
    """the layers that are read by the name of a call: one, a list (`call.conv2`), or names for them
    (`{skip: conv2}`, read as `call.skip`); `call` alone is the first. Default: the last layer"""


def _defined(value: dict[str, BlockSpec]) -> dict[str, BlockSpec]:
    """Nothing: the layers say all that the definitions said."""
    return {}


Blocks = Annotated[dict[BlockName, BlockSpec], AfterValidator(_defined)]
"""Definitions of blocks, which are checked and then left out: what called them is layers by then."""


def _included(value: tuple[str, ...]) -> tuple[str, ...]:
    """Nothing: what the files say is in the document."""
    return ()


Include = Annotated[Names, AfterValidator(_included)]
"""Files whose definitions are in the document by the time it is validated."""
