"""Standard JSON, without NaN and infinity: the writer for logs, `--json` and metadata."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def json_text(data: Any, indent: int | None = None, *, ascii: bool = True) -> str:
    """Format data as JSON, with null for nan and inf, which JSON lacks; with `ascii`, other characters are escaped."""
    try:
        return json.dumps(data, indent=indent, allow_nan=False, ensure_ascii=ascii)
    except ValueError:
        return json.dumps(_finite(data), indent=indent, allow_nan=False, ensure_ascii=ascii)


def json_bytes(data: Any) -> bytes:
    """Format data as JSON in UTF-8. Halves of surrogate pairs, which UTF-8 lacks, are escaped."""
    return json_text(data, ascii=False).encode("utf-8", "backslashreplace")


def _finite(data: Any) -> Any:
    match data:
        case float():
            return data if isfinite(data) else None
        case dict():
            return {key: _finite(value) for key, value in data.items()}
        case list() | tuple():
            return [_finite(value) for value in data]
    return data
