"""`init_from: {freeze: …}`: the layers that it names do not train, as if they said so themselves."""

from __future__ import annotations

from netspec.errors import Problem, did_you_mean, listing
from netspec.schema.language.definitions import names_at
from netspec.schema.specs.links import layer_names
from netspec.schema.specs.patterns import Pattern
from netspec.schema.yaml.tree import Map, Seq


def freeze(tree: Map, net: Map) -> list[Problem]:
    """Write `trainable: false` into the layers of `net` that the training in `tree` freezes; return the problems."""
    plan, layers = tree.get("init_from"), net.get("layers")
    written = names_at(plan, "freeze") if isinstance(plan, Map) else None
    if written is None or not isinstance(plan, Map) or not isinstance(layers, Seq):
        return []
    problems: list[Problem] = []
    known = layer_names(net)
    for text, place in zip(written.names, written.places, strict=True):
        patterns = Pattern(text), Pattern(f"{text}/*")  # the latter: the layers of a call or group
        named = [index for index, name in enumerate(known) if any(name is not None and name in one for one in patterns)]
        if not named:
            names = [name for name in known if name is not None]
            expected, hint = f"one of {listing(names)}", did_you_mean(text, names)
            message = f"`{text}` fits no layer of the net"
            problems.append(Problem(message, place, "init_from.freeze", expected=expected, hint=hint))
        for index in named:
            layer = layers[index]
            if isinstance(layer, str):  # a bare type
                holder = Map(layers.value_at[index])
                holder.put("type", layer, holder.origin, holder.origin)
                layers[index] = layer = holder
            if not isinstance(layer, Map):
                continue
            if layer.get("trainable") is True:
                note = f"the layer says `trainable: true` at {layer.value_at['trainable']}"
                message = f"`{known[index]}` is to be trained, and to be frozen"
                problems.append(Problem(message, place, "init_from.freeze", notes=(note,)))
            elif "trainable" not in layer:
                layer.put("trainable", False, plan.key_at["freeze"], place)
    return problems
