"""`init_from: {freeze: …}`: sets `trainable: false` in the layers that it names."""

from __future__ import annotations

from netspec.errors import Problem, did_you_mean, listing
from netspec.schema.language.definitions import names_at
from netspec.schema.specs.links import layer_names
from netspec.schema.specs.patterns import Pattern
from netspec.schema.yaml.tree import Map, Seq


def freeze(tree: Map, net: Map) -> list[Problem]:
    """Write `trainable: false` into the layers of `net` that the training file `tree` freezes; return the problems."""
    plan, layers = tree.get("init_from"), net.get("layers")
    frozen = names_at(plan, "freeze") if isinstance(plan, Map) else None
    if frozen is None or not isinstance(plan, Map) or not isinstance(layers, Seq):
        return []
    problems: list[Problem] = []
    names = layer_names(net)
    for text, location in zip(frozen.names, frozen.locations, strict=True):
        patterns = Pattern(text), Pattern(f"{text}/*")  # a layer, or the layers of a call or group
        indices = [
            index
            for index, name in enumerate(names)
            if name is not None and any(name in pattern for pattern in patterns)
        ]
        if not indices:
            named = [name for name in names if name is not None]
            expected, hint = f"one of {listing(named)}", did_you_mean(text, named)
            message = f"`{text}` matches no layer of the net"
            problems.append(Problem(message, location, "init_from.freeze", expected=expected, hint=hint))
        for index in indices:
            layer = layers[index]
            if isinstance(layer, str):  # a bare type
                holder = Map(layers.value_at[index])
                holder.put("type", layer, holder.origin, holder.origin)
                layers[index] = layer = holder
            if not isinstance(layer, Map):
                continue
            if layer.get("trainable") is True:
                note = f"`trainable: true` is at {layer.value_at['trainable']}"
                message = f"`freeze` and `trainable: true` contradict each other for `{names[index]}`"
                problems.append(Problem(message, location, "init_from.freeze", expected="one of them", notes=(note,)))
            elif "trainable" not in layer:
                layer.put("trainable", False, plan.key_at["freeze"], location)
    return problems
