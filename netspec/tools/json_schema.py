"""JSON Schema of net and training files, with all registered layers, solvers and data sources."""

from __future__ import annotations

from typing import Any

from netspec.errors import InputError, did_you_mean
from netspec.schema.specs import json_schema as schema
from netspec.tools import specs  # noqa: F401  # registers layers, solvers and data sources


def json_schema(kind: str | None = None) -> dict[str, Any]:
    """JSON Schema of `"net"` or `"train"` files, or of both, for editors that complete and check YAML.

    >>> netspec.json_schema("train")["title"]
    """
    match kind:
        case None | "net" | "train":
            return schema.json_schema(kind)
    hint = did_you_mean(kind, ["net", "train"])
    raise InputError(f"there is no kind of file `{kind}`", expected="net or train", hint=hint)
