"""Expands blocks, groups, repetitions and conditions of a document to a list of layers, before it is validated.

Each expanded layer keeps the location of its definition. `Location.calls` lists the calls and repetitions that led to
it, so that a problem of a layer names both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from netspec.errors import Call, Location, Problem, counted, did_you_mean, listing
from netspec.schema.language.blocks import BLOCK_NAME, GROUP_FIELDS
from netspec.schema.language.definitions import Arguments, Definition, definition_of, names_at
from netspec.schema.language.interpolation import Evaluator, Scope
from netspec.schema.language.namespace import Namespace
from netspec.schema.language.renaming import Renaming
from netspec.schema.language.repeat import INDEX, repetitions, uses
from netspec.schema.specs.kinds import LAYERS, LayerFields
from netspec.schema.specs.spec import describe
from netspec.schema.yaml.tree import Map, Seq, copied

MAX_LAYERS = 100_000
MAX_DEPTH = 40

_EXPANDABLE_FIELDS = frozenset({"repeat", "if", "layers"})


class _LimitExceeded(Exception):
    """The net exceeds a limit, which has been reported."""


@dataclass(frozen=True)
class _Context:
    """The context of a list of layers: values of variables, its path, and the calls that led to it."""

    scope: Scope
    path: str
    calls: tuple[Call, ...] = ()
    blocks: tuple[str, ...] = ()
    """The blocks that are being expanded, the innermost last."""
    depth: int = 0


@dataclass
class _Repetition:
    """Values that differ between the repetitions of a repeated entry."""

    suffix: str = ""
    """Suffix of its name."""
    first_source: str | None = None
    """The name that replaces the first one in its `from`."""


@dataclass
class Expander:
    """Expands the layers of one net; `evaluator` collects the problems."""

    evaluator: Evaluator
    variables: Scope
    path: str = ""
    """The path of the net's document in messages, with a trailing dot."""
    complete: bool = True
    """False if an entry could not be expanded: names may then be missing."""
    _renaming: Renaming = field(init=False)
    _blocks: Map = field(init=False)
    _layers: Seq = field(init=False)
    _first: str | None = None
    """The first input of the net."""
    _count: int = 0

    def expand(self, tree: Map) -> None:
        """Replace the layers of a net by their expansion, evaluated, and the names that refer to them accordingly."""
        layers, blocks, inputs = (tree.get(key) for key in ("layers", "blocks", "inputs"))
        if not isinstance(layers, Seq):
            return
        self._renaming = Renaming(self.evaluator)
        self._blocks = blocks if isinstance(blocks, Map) else Map(tree.origin)
        self._layers = Seq(layers.origin)
        self._check_names()
        names = Namespace.reading({name: name for name in inputs} if isinstance(inputs, Map) else {})
        self._first = names.above
        try:
            self._list(layers, _Context(self.variables, f"{self.path}layers"), names)
        except _LimitExceeded:
            names.mark_incomplete()
        tree["layers"] = self._layers
        self.complete = names.complete
        if not self.complete and not self._layers:
            self.evaluator.failed.add(tree.value_at["layers"])
        self._renaming.net(tree, names, self.path)

    def _check_names(self) -> None:
        for name in self._blocks:
            layer = LAYERS.spelled(name)
            is_valid = re.match(BLOCK_NAME, name) is not None
            if not is_valid or layer != name:
                message, expected = (
                    f"a block cannot be called `{name}`",
                    "a lowercase letter, then letters, digits, _ and -",
                )
                if layer != name or layer in LAYERS:
                    message, expected = f"{message}: that is the layer {layer}", "a different name"
                self._add(message, self._blocks.key_at[name], f"{self.path}blocks.{name}", expected=expected)

    def _add(self, message: str, location: Location, path: str, **facts: Any) -> None:
        self.evaluator.problems.append(Problem(message, location, path, **facts))

    def _list(self, items: Seq, context: _Context, names: Namespace) -> None:
        names.reserve(items)
        if context.depth > MAX_DEPTH:
            self._add("blocks and groups are nested too deeply", items.origin, context.path,
                      expected=f"at most {MAX_DEPTH} levels")  # fmt: skip
            raise _LimitExceeded
        for index, (item, location) in enumerate(zip(items, items.value_at, strict=True)):
            where = replace(context, path=f"{context.path}.{index}")
            at = replace(location, calls=context.calls)
            if isinstance(item, Map) and "repeat" in item:
                self._repeated(item, at, where, names)
            else:
                self._entry(item, at, where, names, _Repetition())

    def _repeated(self, item: Map, location: Location, context: _Context, names: Namespace) -> None:
        """Expand an entry as often as its `repeat` says; each repetition reads the output of the previous one."""
        body = copied(item)
        repeat = body.remove("repeat")
        at = replace(item.value_at["repeat"], calls=context.calls)
        all_values = repetitions(copied(repeat, context.calls), at, context.path, context.scope, self.evaluator)
        if all_values is None:
            names.mark_incomplete()
            return
        variables = {INDEX, *(repeat if isinstance(repeat, Map) else ())}
        is_named = isinstance(body.get("name"), str) and not uses(body, "name", variables)
        is_chained = "from" in body and not uses(body, "from", variables)
        last_name: str | None = None
        for number, values in enumerate(all_values):
            assignments = ", ".join(f"{name} = {value}" for name, value in values.items())
            call = Call(f"in repetition {number + 1} of {len(all_values)} ({assignments})", at)
            inner = replace(context, scope=context.scope | values, calls=(call, *context.calls))
            repetition = _Repetition(f"/{number}" if is_named else "", names.above if number and is_chained else None)
            name = self._entry(body, replace(location, calls=inner.calls), inner, names, repetition)
            last_name = name or last_name
        if is_named and last_name is not None:
            names.alias(last_name.rpartition("/")[0], last_name, at)

    def _entry(
        self, item: Any, location: Location, context: _Context, names: Namespace, repetition: _Repetition
    ) -> str | None:
        """Expand one layer, call or group without its `repeat`; return its local name."""
        self._count += 1
        if self._count > MAX_LAYERS:
            self._add("the net is too large", location, context.path, expected=f"at most {MAX_LAYERS} layers")
            raise _LimitExceeded
        entry = self._evaluated(item, location, context)
        if not isinstance(entry, Map):
            self._invalid_or_python_layer(entry, location, context, names)
            return None
        if "if" in entry and not self._condition(entry, context, names):
            return None
        kind = entry.get("type")
        if "layers" in entry and "type" not in entry:
            return self._group(entry, location, context, names, repetition)
        if isinstance(kind, str) and kind in self._blocks:
            return self._call(kind, entry, location, context, names, repetition)
        return self._layer(entry, location, context, names, repetition)

    def _evaluated(self, item: Any, location: Location, context: _Context) -> Any:
        """Return a copy of an entry with its expressions evaluated, except for the layers of a group."""
        if isinstance(item, str):
            entry = Map(location)
            entry.put("type", self.evaluator.text(item, context.scope, location, context.path), location, location)
            return entry
        if not isinstance(item, Map):
            return item
        entry = copied(item, context.calls)
        self.evaluator.evaluate(entry, context.scope, context.path, ("layers",) if "type" not in entry else ())
        if isinstance(item.get("name"), str) and type(entry["name"]) is int:  # `${index + 1}`
            entry["name"] = str(entry["name"])
        return entry

    def _condition(self, entry: Map, context: _Context, names: Namespace) -> bool:
        at = entry.value_at["if"]
        value = entry.remove("if")
        if isinstance(value, bool) and at not in self.evaluator.failed:
            if not value and isinstance(entry.get("name"), str):
                names.left_out.add(entry["name"])
            return value
        names.mark_incomplete()
        if at not in self.evaluator.failed:
            self._add("`if` must be true or false", at, f"{context.path}.if", got=describe(value),
                      expected="true, false, or an expression such as ${depth > 2}")  # fmt: skip
        return False

    def _invalid_or_python_layer(self, entry: Any, location: Location, context: _Context, names: Namespace) -> None:
        """Copy an entry that is not a mapping: a layer created in Python, or a value that validation refuses."""
        if not isinstance(entry, LayerFields):
            names.mark_incomplete()
        elif names.prefix:
            self._add("a layer created in Python cannot be part of a block or a named group", location, context.path,
                      expected="a mapping with the fields of the layer")  # fmt: skip
        else:
            name = entry.name or names.default_name(str(getattr(entry, "type", "")))
            names.add_layer(name, name)
        self._layers.add(entry, location)

    def _layer(
        self, entry: Map, location: Location, context: _Context, names: Namespace, repetition: _Repetition
    ) -> str | None:
        kind = entry.get("type")
        if isinstance(kind, str) and self._is_nearly_a_block(kind, entry, context):
            names.mark_incomplete()
            return None
        self._from(entry, location, context, names, repetition)
        self._renaming.rename(entry, "share", names, f"{context.path}.share")
        local = self._name(entry, location, context, names, repetition)
        if local in names.calls and self._is_taken(local, entry, location, context, names):
            return None
        self._layers.add(entry, location)
        if local is not None:
            names.add_layer(local, names.prefix + local)
        return local

    def _is_nearly_a_block(self, kind: str, entry: Map, context: _Context) -> bool:
        """Whether an unknown type resembles the name of a block, which is then suggested."""
        hint, at = did_you_mean(kind, self._blocks), entry.value_at["type"]
        if hint is None or kind in LAYERS or at in self.evaluator.failed:
            return False
        self._add(f"unknown layer or block {kind!r}", at, f"{context.path}.type", hint=hint,
                  expected=f"a layer type, or one of the blocks {listing(list(self._blocks))}")  # fmt: skip
        return True

    def _name(
        self, entry: Map, location: Location, context: _Context, names: Namespace, repetition: _Repetition
    ) -> str | None:
        """Return the local name of an entry; in the entry, replace it by its name in the net."""
        name, kind = entry.get("name"), entry.get("type")
        if "name" not in entry and isinstance(kind, str) and kind:
            local = names.default_name(kind)
            entry.put("name", names.prefix + local, location, location)
            return local
        if not isinstance(name, str) or entry.value_at["name"] in self.evaluator.failed:
            names.mark_incomplete()
            is_validated = isinstance(kind, str) and kind not in self._blocks
            if "name" in entry and not isinstance(name, str) and not is_validated:
                self._add("`name` is not text", entry.value_at["name"], f"{context.path}.name", expected="text",
                          got=describe(name), hint="write it in quotes" if isinstance(name, int) else None)  # fmt: skip
            return None
        entry["name"] = f"{names.prefix}{name}{repetition.suffix}" if name else name
        return name + repetition.suffix

    def _is_taken(self, local: str, entry: Map, location: Location, context: _Context, names: Namespace) -> bool:
        """Return whether another layer, call, group or input already has a name; if so, report it."""
        if local not in names.names and local not in names.calls:
            return False
        message = f"two layers or calls are called `{names.prefix}{local}`"
        if names.is_input(local):
            message = f"`{local}` is the name of an input"
        first = names.calls.get(local)
        at, notes = entry.value_at.get("name", location), () if first is None else (f"the first is at {first}",)
        self._add(message, at, f"{context.path}.name", expected="a different name", notes=notes)
        names.mark_incomplete()
        return True

    def _from(
        self, entry: Map, location: Location, context: _Context, names: Namespace, repetition: _Repetition
    ) -> tuple[str, ...] | None:
        """Return the sources of an entry as names in the net; write them into the entry if they are not the default."""
        if "from" in entry:
            return self._renaming.rename(entry, "from", names, f"{context.path}.from", repetition.first_source)
        if names.above is None:
            return ()
        if names.above != self._default():
            entry.put("from", names.above, location, location)
        return (names.above,)

    def _default(self) -> str | None:
        """The layer or input that the next layer of the net would read without `from`."""
        if not self._layers:
            return self._first
        last = self._layers[-1]
        name = last.get("name") if isinstance(last, Map) else getattr(last, "name", None)
        return name if isinstance(name, str) else None

    def _group(
        self, entry: Map, location: Location, context: _Context, names: Namespace, repetition: _Repetition
    ) -> str | None:
        """Expand a group; if it has a name, into a separate namespace."""
        for key in entry:
            if key not in GROUP_FIELDS:
                fields = list(GROUP_FIELDS)
                self._add(f"a group of layers has no field `{key}`", entry.key_at[key], f"{context.path}.{key}",
                          expected=f"one of {listing(fields)}", hint=did_you_mean(key, fields))  # fmt: skip
        layers, inside = entry["layers"], names
        if not isinstance(layers, Seq):
            self._add("`layers` must be a list", entry.value_at["layers"], f"{context.path}.layers",
                      expected="a list of layers", got=describe(layers))  # fmt: skip
            names.mark_incomplete()
            return None
        sources = self._from(entry, location, context, names, repetition)
        local = self._name(entry, location, context, names, repetition) if "name" in entry else None
        if local is not None and self._is_taken(local, entry, location, context, names):
            return None
        if local is not None:
            inside = Namespace(f"{names.prefix}{local}/", names.block, names, above=names.above)
        if sources is not None and len(sources) > 1:
            self._add("a group of layers takes one input", entry.value_at["from"], f"{context.path}.from",
                      expected="one name", got=listing(list(sources)),
                      hint="use a block, which can have several `inputs`, or `from` in the layers")  # fmt: skip
        inside.above = sources[0] if sources else inside.above
        self._list(layers, replace(context, path=f"{context.path}.layers", depth=context.depth + 1), inside)
        if local is not None:
            names.adopt(local, inside, {}, location)
        return local

    def _call(
        self, block: str, entry: Map, location: Location, context: _Context, names: Namespace, repetition: _Repetition
    ) -> str | None:
        """Expand a call of a block; names of its layers begin with the name of the call."""
        if block in context.blocks:
            chain = [*context.blocks[context.blocks.index(block) :], block]
            self._add(f"the block `{block}` contains itself", entry.value_at["type"], f"{context.path}.type",
                      expected="a block that does not call itself", got=" → ".join(chain))  # fmt: skip
            names.mark_incomplete()
            return None
        sources = self._from(entry, location, context, names, repetition)
        local = self._name(entry, location, context, names, repetition)
        definition = definition_of(self._blocks[block])
        if local is not None and self._is_taken(local, entry, location, context, names):
            return None
        if definition is None or sources is None or local is None:
            names.mark_incomplete()
            return None
        call = Call(f"in `{names.prefix}{local}`, a call of the block `{block}`", location)
        path = f"{self.path}blocks.{block}"
        inner = _Context(self.variables, path, (call, *context.calls), (*context.blocks, block), context.depth + 1)
        problems_before = len(self.evaluator.problems)
        note = (f"the block is defined at {self._blocks.key_at[block]}",)
        arguments = Arguments(definition, block, entry, call.location, note, self.evaluator, context.scope)
        scope = arguments.scope(self.variables, context.path, f"{path}.params", inner.calls)
        if len(sources) != len(definition.inputs):
            count = len(definition.inputs)
            self._add(
                f"the block `{block}` takes {count} {'input' if count == 1 else 'inputs'}, not {len(sources)}",
                entry.value_at.get("from", location), f"{context.path}.from", notes=note,
                expected=f"`from` with {counted(count, 'name')}, for the block's {'input' if count == 1 else 'inputs'} "
                f"{', '.join(f'`{name}`' for name in definition.inputs)}",
            )  # fmt: skip
        if len(self.evaluator.problems) > problems_before:
            names.mark_incomplete()
            return None
        inside = Namespace.reading(dict(zip(definition.inputs, sources, strict=True)), f"{names.prefix}{local}/", block)
        first = len(self._layers)
        self._list(definition.layers, replace(inner, scope=scope, path=f"{path}.layers"), inside)
        outputs = self._outputs(definition, inside, replace(inner, scope=scope))
        if not inside.complete:
            names.mark_incomplete()
        self._apply_call_fields(entry, names, self._layers[first:], inside.prefix)
        names.adopt(local, inside, outputs, location)
        return local

    def _outputs(self, definition: Definition, inside: Namespace, inner: _Context) -> dict[str, str]:
        """Return the outputs of a block by name, in order; empty if it has one. Sets `inside.above` to the first."""
        if definition.outputs is None:
            return {}
        holder = Map(inner.calls[0].location)
        value, location = definition.outputs
        holder.put("outputs", copied(value, inner.calls), location, replace(location, calls=inner.calls))
        self.evaluator.evaluate(holder, inner.scope, inner.path, ())
        outputs = holder["outputs"]
        if isinstance(outputs, Map):
            for key in outputs:
                self._renaming.rename(outputs, key, inside, f"{inner.path}.outputs.{key}")
            by_name: dict[str, str] = dict(outputs)
        else:
            local = names_at(holder, "outputs")
            in_net = self._renaming.rename(holder, "outputs", inside, f"{inner.path}.outputs")
            by_name = dict(zip(local.names, in_net, strict=True)) if local and in_net else {}
        inside.above = next(iter(by_name.values()), inside.above)
        return by_name if len(by_name) > 1 or isinstance(outputs, Map) else {}

    def _apply_call_fields(self, entry: Map, names: Namespace, layers: list[Any], prefix: str) -> None:
        """Copy `trainable` and `share` of a call to its layers."""
        if "trainable" in entry:
            for layer in layers:
                if isinstance(layer, Map) and "trainable" not in layer:
                    layer.put("trainable", entry["trainable"], entry.key_at["trainable"], entry.value_at["trainable"])
        owner = entry.get("share")
        if not isinstance(owner, str):
            return
        owner_prefix = next((space.prefix for space in names.outward() if owner in space.names), "")
        for layer in layers:
            if isinstance(layer, Map) and "share" not in layer and isinstance(layer.get("name"), str):
                inner = layer["name"].removeprefix(prefix)
                layer.put("share", f"{owner_prefix}{owner}/{inner}", entry.key_at["share"],
                          entry.value_at["share"])  # fmt: skip


def is_plain(tree: Map) -> bool:
    """Whether a net contains only layers: no blocks, groups, repetitions or conditions."""
    layers = tree.get("layers")
    entries = layers if isinstance(layers, Seq) else ()
    return "blocks" not in tree and not any(
        isinstance(entry, Map)
        and not _EXPANDABLE_FIELDS.isdisjoint(entry)
        and ("repeat" in entry or "if" in entry or "type" not in entry)
        for entry in entries
    )
