"""What calls of layers read, as configurations of Keras 1 to 3 say it: references to what other calls made."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from netspec.errors import InputError


def damaged(why: str) -> InputError:
    """The error for a configuration that contradicts itself."""
    return InputError(f"the configuration of the model is damaged: {why}", expected="a model as Keras writes it")


class Reference(tuple[str, int, int]):
    """A tensor by the name of its layer, the number of the call, and that of the output."""

    __slots__ = ()


class Numbers(list[Any]):
    """The numbers of an array, in nested lists, and of what type they are."""

    def __init__(self, value: list[Any], dtype: str) -> None:
        super().__init__(value)
        self.dtype = dtype


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise damaged("a tensor is not given by whole numbers")
    return value


def references(value: Any) -> Iterator[Reference]:
    """The tensors in `input_layers` or `output_layers`."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        yield Reference((value[0], _whole(value[1]), _whole(value[2])))
    elif isinstance(value, list):
        for one in value:
            yield from references(one)
    else:
        raise damaged("it does not say its inputs or outputs")


def references_in(value: Any) -> Iterator[Reference]:
    """The references in nested lists and mappings."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from references_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from references_in(one)


def _revived(value: Any) -> Any:
    """The arguments of a call of Keras 3, with references in the place of tensors, and slices, numbers and texts."""
    if isinstance(value, list):
        return [_revived(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if kind == "__keras_tensor__" and isinstance(config, dict):
        history = config.get("keras_history")
        if not isinstance(history, list) or len(history) != 3 or not isinstance(history[0], str):
            raise damaged("a tensor does not say which layer made it")
        return Reference((history[0], _whole(history[1]), _whole(history[2])))
    if kind == "__tuple__":
        return _revived(value.get("items", []))
    if kind in ("__tensor__", "__numpy__") and isinstance(config, dict):
        found = config.get("value")
        return Numbers(found, str(config.get("dtype"))) if isinstance(found, list) else found
    if kind == "__slice__" and isinstance(config, dict):
        return slice(*(config.get(end) for end in ("start", "stop", "step")))
    if kind == "__ellipsis__":
        return Ellipsis
    return {key: _revived(one) for key, one in value.items()}


def told(node: Any, names: Collection[str]) -> Any:
    """The arguments of a call: `{"args", "kwargs"}` of Keras 3, or made of the list of Keras 1 and 2."""
    if isinstance(node, dict) and "args" in node:
        return _revived({"args": node["args"], "kwargs": node.get("kwargs") or {}, "new": True})
    if isinstance(node, dict):  # inputs by name
        return {"args": [{key: _old(one, names)[0] for key, one in node.items()}], "kwargs": {}}
    if not isinstance(node, list):
        raise damaged("a call of a layer is no list")
    listed = [node] if node and isinstance(node[0], str) else node
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for one in listed:
        tensor, more = _old(one, names)
        args.append(tensor)
        kwargs |= more
    return {"args": [args[0] if len(args) == 1 else args], "kwargs": kwargs}


def _old(one: Any, names: Collection[str]) -> tuple[Any, dict[str, Any]]:
    if isinstance(one, list) and len(one) >= 3 and isinstance(one[0], str):
        more = one[3] if len(one) > 3 and isinstance(one[3], dict) else {}
        kwargs = {key: _old_argument(value, names) for key, value in more.items()}
        if one[0] == "_CONSTANT_VALUE":
            return one[2], kwargs
        return Reference((one[0], _whole(one[1]), _whole(one[2]))), kwargs
    raise damaged("a call of a layer does not say what it reads")


def _old_argument(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, list):
        if len(value) == 3 and isinstance(value[0], str) and value[0] in names and type(value[1]) is int:
            return Reference((value[0], value[1], _whole(value[2])))
        return [_old_argument(one, names) for one in value]
    if isinstance(value, dict) and value.keys() == {"start", "stop", "step"}:
        return slice(*(_old_argument(value[end], names) for end in ("start", "stop", "step")))
    return Ellipsis if isinstance(value, dict) and value.get("class_name") == "__ellipsis__" else value
