"""Small changes to a spec, like typing mistakes: in its tree of values, or in its text."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]

SCALARS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 0.5, -0.5, 1e-4, 1e30, 2**31, 2**63, 10**40),
    *(
        "",
        " ",
        "no",
        "1",
        "${batch}",
        "${nowhere}",
        "${1/0}",
        "${",
        "label",
        "logits",
        "image",
        "net.yaml",
        "train.yaml",
    ),
    *("Dense", "SGD", "fully", "group", "CosineDecay", "same", "relu", "mnist", "../..", "é", "\t", "a: b"),
    *([], {}, [[]], [1, 2], [1, 2, 3], [None], {"type": "Dense"}, {"type": "Add"}, {"type": None}, {"": {}}),
]
KEYS = ["name", "type", "from", "units", "filters", "shape", "share", "vars", "net", "strides", "", "1", "a.b", "${x}"]
KEYS += ["repeat", "if", "layers", "blocks", "include", "params", "inputs", "outputs"]
PIECES = [*"{}[]:,-#&*!|>'\"%@`$ \t\n\r\\~?", "- ", ": ", "<<: ", "${", "---\n", "\ufeff", "\x00", "\u2028", "😀"]


def paths(tree: Any, path: Path = ()) -> list[Path]:
    """Return the paths of all values in a tree except the root."""
    steps: list[Any] = (
        list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    )
    return [path_below for step in steps for path_below in ((*path, step), *paths(tree[step], (*path, step)))]


@st.composite
def changed_tree(draw: st.DrawFn, tree: Any) -> str:
    """The tree with up to three nodes removed, renamed, doubled, moved or replaced; as YAML, a line for each value."""
    new = deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        candidates = paths(new)
        if not candidates:
            break
        *way, step = draw(st.sampled_from(candidates))
        holder: Any = new
        for key in way:
            holder = holder[key]
        _change(draw, holder, step, new, candidates)
    return json.dumps(new, indent=1, ensure_ascii=False)


def _change(draw: st.DrawFn, holder: Any, step: Any, root: Any, paths_in_root: list[Path]) -> None:
    match draw(st.sampled_from(["remove", "replace", "double", "rename", "copy"])):
        case "remove":
            del holder[step]
        case "replace":
            holder[step] = deepcopy(draw(st.sampled_from(SCALARS)))
        case "double" if isinstance(holder, list):
            holder.insert(step, deepcopy(holder[step]))
        case "rename" | "double" if isinstance(holder, dict):
            holder[draw(st.sampled_from(KEYS))] = holder.pop(step)
        case _:  # something from elsewhere in the document
            value = root
            for key in draw(st.sampled_from(paths_in_root)):
                value = value[key]
            holder[step] = deepcopy(value)


@st.composite
def changed_text(draw: st.DrawFn, text: str) -> str:
    """Return the text with up to four characters or lines removed, repeated, inserted or swapped."""
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        at = draw(st.integers(0, max(0, len(text) - 1)))
        line = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["cut", "put", "remove line", "double line", "indent", "swap lines", "end"])):
            case "cut":
                text = text[:at] + text[at + draw(st.integers(1, 8)) :]
            case "put":
                text = text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
            case "remove line":
                text = "\n".join(lines[:line] + lines[line + 1 :])
            case "double line":
                text = "\n".join(lines[: line + 1] + lines[line:])
            case "indent":
                shift = draw(st.sampled_from([" ", "  ", "\t", ""]))
                text = "\n".join([*lines[:line], shift + lines[line].lstrip(), *lines[line + 1 :]])
            case "swap lines":
                other = draw(st.integers(0, len(lines) - 1))
                lines[line], lines[other] = lines[other], lines[line]
                text = "\n".join(lines)
            case _:
                text = text[:at]
    return text
