"""Metadata of an exported ONNX model that describe its inputs and outputs, and their form in netspec's files.

An ONNX file holds JSON texts: `netspec_classes` (class names by output), `netspec_functions` (`softmax` or `sigmoid`
where an output needs it to become probabilities), and `netspec_transforms` (transforms of the inputs, in order).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CLASSES, FUNCTIONS, TRANSFORMS = "netspec_classes", "netspec_functions", "netspec_transforms"
INCLUDED = "netspec_included_transforms"
"""Key of the transforms that the model contains, after those of `netspec_transforms`."""
MAX_CHARACTERS = 2**24
"""Number of characters of a text of metadata that is read; longer ones are ignored."""


def meanings(metadata: Mapping[str, str], inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, Any]:
    """Convert the metadata of an ONNX model that netspec exported to the metadata of netspec's own files.

    `inputs` and `outputs` map names in the model to those in the net. Malformed entries are ignored: they may come
    from another program.
    """
    classes, functions = (_mapping(metadata.get(name)) for name in (CLASSES, FUNCTIONS))
    answers: dict[str, dict[str, Any]] = {}
    for name, renamed in outputs.items():
        answer: dict[str, Any] = {}
        names = classes.get(name)
        if isinstance(names, list) and all(isinstance(label, str) for label in names):
            answer["classes"] = names
        if functions.get(name) in ("softmax", "sigmoid"):
            answer["function"] = functions[name]
        if answer:
            answers[renamed] = answer
    meta: dict[str, Any] = {"outputs": answers} if answers else {}
    steps = _json(metadata.get(TRANSFORMS))
    if isinstance(steps, list) and all(isinstance(step, dict) and isinstance(step.get("type"), str) for step in steps):
        meta["transforms"] = [{**step, **_renamed_input(step, inputs)} for step in steps]
    return meta


def _renamed_input(step: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, str]:
    name = step.get("input")
    return {"input": inputs.get(name, name)} if isinstance(name, str) else {}


def _mapping(text: str | None) -> dict[str, Any]:
    value = _json(text)
    return value if isinstance(value, dict) else {}


def _json(text: str | None) -> Any:
    """Return the value of a JSON text; None if it is missing, too long or damaged."""
    if text is None or len(text) > MAX_CHARACTERS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
