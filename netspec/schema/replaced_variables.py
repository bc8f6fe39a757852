"""Variables of a net file that the training file replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netspec.errors import InputError
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.reader import read_yaml
from netspec.schema.yaml.tree import Map


def replaced_variables(spec: TrainSpec) -> Iterator[str]:
    """Yield a sentence for each variable of the net file that has another value in the training file.

    Variables that overrides set, and values that are expressions, are left out.
    """
    net, own = _variables(spec.net.written), _variables(spec.written)
    if net is None or own is None:
        return
    for name in sorted(net.keys() & own.keys()):
        declared, replacing = net.key_at[name], own.value_at[name]
        if "<" in (declared.file[:1], replacing.file[:1]) or declared.file == replacing.file:  # Python, command line
            continue
        replaced = _value_in(declared.file, name, own[name])
        if replaced == own[name] or _is_expression(replaced) or _is_expression(own[name]):
            continue
        yield (
            f"`vars.{name}` is {own[name]} ({replacing.file}:{replacing.line}), not {replaced} "
            f"({declared.file}:{declared.line}): variables of the training file replace those of the net file"
        )


def _variables(tree: Map | None) -> Map | None:
    variables = None if tree is None else tree.get("vars")
    return variables if isinstance(variables, Map) else None


def _value_in(file: str, name: str, default: Any) -> Any:
    """Return the value of a variable in a file; `default` if the file was changed or removed in the meantime."""
    try:
        variables = _variables(read_yaml(file))
    except InputError:
        return default
    return default if variables is None else variables.get(name, default)


def _is_expression(value: Any) -> bool:
    return isinstance(value, str) and "${" in value
