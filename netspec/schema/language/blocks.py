"""Fields of blocks, groups, repetitions and conditions, which stand for several layers.

`language/expand.py` replaces them by layers before a net is validated. These classes validate definitions, with
locations, and are the source of the JSON Schema; a validated spec contains none of them.
"""

from __future__ import annotations

import keyword
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from netspec.schema.specs.field_types import Names, as_names
from netspec.schema.specs.spec import Spec, describe, problem

CALL_FIELDS = ("type", "name", "from", "repeat", "if", "share", "trainable")
"""Fields of a call of a block, in addition to the block's parameters."""
GROUP_FIELDS = ("name", "from", "repeat", "if", "layers")
"""Fields of a group of layers."""


def _only_in_documents(value: Any) -> None:
    """Refuse fields that only a document can have; they are expanded before validation."""
    if value is not None:
        raise problem(
            "this field is only supported in a spec", expected="a net file, or a mapping with the same content",
            got="a layer created in Python", hint="use a loop or a condition in Python",
        )  # fmt: skip


Repeat = Annotated[Any, BeforeValidator(_only_in_documents), WithJsonSchema({"x-netspec-shared": "repeat"})]
"""Number of repetitions, or variables with a list of values each."""
Condition = Annotated[Any, BeforeValidator(_only_in_documents), WithJsonSchema({"x-netspec-shared": "condition"})]
"""Whether the net contains the layer."""

BLOCK_NAME = r"^[a-z][A-Za-z0-9_\-]*$"
"""Names of blocks begin with a lower-case letter, so that new layers, with a capital letter, never clash with them."""
BlockName = Annotated[str, WithJsonSchema({"type": "string", "pattern": BLOCK_NAME})]

Entry = Annotated[Any, WithJsonSchema({"x-netspec-registry": "layer", "x-netspec-entry": True})]
"""An item of a list of layers: a layer, a call of a block, a group of layers, or an included file."""


def is_variable(name: str) -> bool:
    """Whether an expression can use the name."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _params(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if name in CALL_FIELDS:
            raise problem(
                f"a parameter cannot be called `{name}`, which is a field of every call", field=name,
                expected="a different name",
            )  # fmt: skip
        if not is_variable(name):
            raise problem(
                f"`{name}` is not a valid name of a parameter", field=name,
                expected="letters, digits and _, not starting with a digit",
            )  # fmt: skip
    return value


def _inputs(value: tuple[str, ...]) -> tuple[str, ...]:
    duplicate = next((name for index, name in enumerate(value) if name in value[:index]), None)
    if duplicate is not None:
        raise problem(f"two inputs are called `{duplicate}`", expected="different names")
    return value


def _outputs(value: Any) -> Any:
    if isinstance(value, dict):
        if value and all(isinstance(layer, str) for layer in value.values()):
            return dict(value)
        raise problem(
            "not a mapping from names to layers",
            expected="a mapping such as `{skip: conv2, out: pool}`",
            got=describe(value),
        )
    return as_names(value)


Outputs = Annotated[
    tuple[str, ...] | dict[str, str],
    BeforeValidator(_outputs, json_schema_input_type=str | list[str] | dict[str, str]),
]


class BlockSpec(Spec):
    """Reusable layers with parameters. The name of the block can be used as the `type` of a layer."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "parameters": "use `params`",
        "args": "use `params`",
        "defaults": "write defaults with the parameters: `params: {filters, strides: 1}`",
        "input": "use `inputs`",
        "output": "use `outputs`",
        "from": "the layers of a block read the names in `inputs`",
    }

    description: str = ""
    """Purpose of the block, in free text."""
    params: Annotated[dict[str, Any], AfterValidator(_params)] = Field(default_factory=dict)
    """Parameters with their defaults, for `${…}` expressions in the block. A call must set those without a default."""
    inputs: Annotated[Names, AfterValidator(_inputs)] = ("input",)
    """Names by which the layers of the block read its inputs, in the order of `from` of a call."""
    layers: list[Entry] = Field(default_factory=list, min_length=1)
    """The layers. By default the first one reads the first input."""
    net: str | None = None
    """The path of a net file, relative to this one, which becomes the block; no other field may be set. The inputs that
    its layers read, its outputs and its `vars` are the `inputs`, `outputs` and `params` of the block."""
    outputs: Outputs | None = None
    """Layers that other layers can read by the name of a call: one layer, a list (read as `call.conv2`), or a mapping
    with names for them (`{skip: conv2}`, read as `call.skip`). `call` alone is the first. By default the last layer."""

    @model_validator(mode="after")
    def _has_layers(self) -> Self:
        if not self.layers and self.net is None:
            raise problem("a block needs `layers`", expected="a list of layers, or `net` with the path of a net file")
        return self


def _drop_blocks(value: dict[str, BlockSpec]) -> dict[str, BlockSpec]:
    """Return no blocks: the layers that call them were replaced already."""
    return {}


Blocks = Annotated[dict[BlockName, BlockSpec], AfterValidator(_drop_blocks)]
"""Definitions of blocks, which are validated and then dropped."""


def _drop_includes(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return no files: the document contains their definitions already."""
    return ()


Include = Annotated[Names, AfterValidator(_drop_includes)]
"""Files whose definitions were added to the document before validation."""
