"""Variables of a net's file whose values the file of a training replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netspec.errors import InputError
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.reader import read_yaml
from netspec.schema.yaml.tree import Map


def replaced_variables(spec: TrainSpec) -> Iterator[str]:
    """Yield a sentence for each variable of the net's file that has another value in the training's file.

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
            f"`vars.{name}` is {own[name]}, as in {replacing.file}:{replacing.line}, not {replaced}, as in "
            f"{declared.file}:{declared.line}: variables of a training file replace those of its net"
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
