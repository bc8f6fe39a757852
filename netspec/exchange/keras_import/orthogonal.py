"""Which parameters Muon moves as matrices: `exclude_layers` of Keras → `exclude`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from netspec.exchange.keras_import.archive import KerasFile
from netspec.exchange.keras_import.fields import Reading
from netspec.exchange.keras_import.translate import Wanted
from netspec.exchange.keras_names import Variable, keras_snake, layer_type
from netspec.exchange.keras_solvers import COEFFICIENTS
from netspec.schema.patterns import matches

FIELDS = (*COEFFICIENTS, "exclude_layers", "exclude_embeddings")
"""Fields of Keras's Muon that are others here."""
MATRIX = 2
"""Axes of a matrix."""
MOST, LONGEST = 256, 200
"""Expressions that are read, and the characters of one."""
USUAL = ("*embeddings",)
"""What is excluded here by default."""
_READ = re.compile(r"\^?(\(\^\|/\))?([\w\-/ ]|\\[^\w])*(\(\.\*/\)\?[\w\-/ ]*)?\$?")
"""Expressions whose search takes no long time: text, what begins or ends there, and one gap of whole names."""
Parameters: TypeAlias = "Sequence[tuple[Wanted, Variable]]"


def name_of(one: Wanted, variable: Variable) -> str:
    """The parameter that a variable is here."""
    return f"{one.draft.name}/{one.prefix}{variable.state}"


def exclusion(file: KerasFile, trained: Parameters, reading: Reading) -> dict[str, Any]:
    """The field `exclude`: matrices that Keras moves by AdamW."""
    there = matrices_there(file, trained, reading)
    here = [name_of(*pair) for pair in trained if _axes(*pair) == MATRIX]
    if all((name in there) != matches(USUAL, name) for name in here):
        return {}
    return {"exclude": [name for name in here if name not in there]}


def matrices_there(file: KerasFile, trained: Parameters, reading: Reading) -> list[str]:
    """The parameters that Keras moves as matrices."""
    config = _config(file.training or {})
    expressions = _expressions(config.get("exclude_layers"), reading)
    embeddings = config.get("exclude_embeddings", True)
    found = []
    for one, variable in trained:
        path = _path(one, variable)
        kept = any(text.search(path) for text in expressions) or (embeddings and "embedding" in path.lower())
        if _axes(one, variable) == MATRIX and not kept:
            found.append(name_of(one, variable))
    return found


def _axes(one: Wanted, variable: Variable) -> int:
    """How many axes a parameter has, here and in Keras."""
    return len(one.shapes[one.prefix + variable.state])


def _config(training: Mapping[str, Any]) -> Mapping[str, Any]:
    """The optimizer's own fields, within a LossScaleOptimizer too."""
    given = training.get("optimizer") or training.get("optimizer_config")
    config = given.get("config") if isinstance(given, dict) else None
    if isinstance(config, dict) and isinstance(config.get("inner_optimizer"), dict):
        config = config["inner_optimizer"].get("config")
    return config if isinstance(config, dict) else {}


def _path(one: Wanted, variable: Variable) -> str:
    """The path of a variable in Keras, as far as names are told: `lstm/lstm_cell/kernel`."""
    cell = f"{keras_snake(layer_type(one.layer.class_name))}_cell"
    parts = [cell if part == "cell" else part for part in variable.group.split("/") if part]
    return "/".join([one.layer.path[-1], *parts, variable.name])[-LONGEST:]


def _expressions(given: Any, reading: Reading) -> list[re.Pattern[str]]:
    texts = [str(text) for text in given] if isinstance(given, (list, tuple)) else []
    read = [text for text in texts[:MOST] if len(text) <= LONGEST and _READ.fullmatch(text)]
    left = len(texts) - len(read)
    if left:
        reading.note(
            f"{left} of `exclude_layers` of the optimizer Muon {'was' if left == 1 else 'were'} left out: names of "
            f"layers or parts of them are read, of expressions no more than that"
        )
    return [re.compile(text) for text in read]
