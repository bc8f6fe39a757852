"""Blocks, groups, repetitions and conditions → a plain list of layers, in the document, before it is validated.

What is written once and stands for several keeps the place of its definition; `Location.calls` says by which calls and
repetitions it came from, so that a problem of a layer names both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from netspec.errors import Call, Location, Problem, did_you_mean, listing
from netspec.schema.language.blocks import BLOCK_NAME, GROUP_FIELDS
from netspec.schema.language.definitions import Arguments, Definition, definition_of, names_at
from netspec.schema.language.interpolation import Evaluator, Scope
from netspec.schema.language.namespace import Namespace
from netspec.schema.language.renaming import Renaming
from netspec.schema.language.repeat import INDEX, turns, uses
from netspec.schema.specs.kinds import LAYERS, LayerFields
from netspec.schema.specs.spec import describe
from netspec.schema.yaml.tree import Map, Seq, copied

MAX_LAYERS = 100_000
MAX_DEPTH = 40

_MAKES_SEVERAL = frozenset({"repeat", "if", "layers"})


class _TooMuch(Exception):
    """The net is beyond the bounds; told already."""


@dataclass(frozen=True)
class _Setting:
    """What surrounds a list of layers: the values of variables, the way to it, and how it was come to."""

    scope: Scope
    path: str
    calls: tuple[Call, ...] = ()
    blocks: tuple[str, ...] = ()
    """The blocks that are being written out, the innermost last."""
    depth: int = 0


@dataclass
class _Turn:
    """How an entry differs from turn to turn of its repetition."""

    suffix: str = ""
    """What its name is followed by."""
    reads: str | None = None
    """What it reads in place of the first name that it says."""


@dataclass
class Expander:
    """Writes out the layers of one net; `evaluator` collects what is wrong."""

    evaluator: Evaluator
    variables: Scope
    path: str = ""
    """The path of the net's document in messages, with a dot at its end."""
    whole: bool = True
    """False where something could not be written out: names may then be missing."""
    _renaming: Renaming = field(init=False)
    _blocks: Map = field(init=False)
    _made: Seq = field(init=False)
    _first: str | None = None
    """The first input of the net."""
    _count: int = 0

    def expand(self, tree: Map) -> None:
        """Replace the layers of a net by what they stand for, evaluated, and the names that read them likewise."""
        layers, blocks, inputs = (tree.get(key) for key in ("layers", "blocks", "inputs"))
        if not isinstance(layers, Seq):
            return
        self._renaming = Renaming(self.evaluator)
        self._blocks = blocks if isinstance(blocks, Map) else Map(tree.origin)
        self._made = Seq(layers.origin)
        self._check_names()
        names = Namespace.reading({name: name for name in inputs} if isinstance(inputs, Map) else {})
        self._first = names.above
        try:
            self._list(layers, _Setting(self.variables, f"{self.path}layers"), names)
        except _TooMuch:
            names.broken()
        tree["layers"] = self._made
        self.whole = names.whole
        if not self.whole and not self._made:
            self.evaluator.failed.add(tree.value_at["layers"])
        self._renaming.net(tree, names, self.path)

    def _check_names(self) -> None:
        for name in self._blocks:
            layer = LAYERS.spelled(name)
            fits = re.match(BLOCK_NAME, name) is not None
            if not fits or layer != name:
                message, expected = f"a block can't be called `{name}`", "a small letter, then letters, digits, _ and -"
                if layer != name or layer in LAYERS:
                    message, expected = f"{message}: that is the layer {layer}", "another name"
                self._add(message, self._blocks.key_at[name], f"{self.path}blocks.{name}", expected=expected)

    def _add(self, message: str, place: Location, path: str, **facts: Any) -> None:
        self.evaluator.problems.append(Problem(message, place, path, **facts))

    def _list(self, items: Seq, setting: _Setting, names: Namespace) -> None:
        names.expect(items)
        if setting.depth > MAX_DEPTH:
            self._add("blocks and groups are nested too deeply", items.origin, setting.path,
                      expected=f"at most {MAX_DEPTH} levels")  # fmt: skip
            raise _TooMuch
        for index, (item, place) in enumerate(zip(items, items.value_at, strict=True)):
            where = replace(setting, path=f"{setting.path}.{index}")
            at = replace(place, calls=setting.calls)
            if isinstance(item, Map) and "repeat" in item:
                self._repeated(item, at, where, names)
            else:
                self._entry(item, at, where, names, _Turn())

    def _repeated(self, item: Map, place: Location, setting: _Setting, names: Namespace) -> None:
        """An entry as often as its `repeat` says, each turn reading the one before."""
        body = copied(item)
        given = body.remove("repeat")
        at = replace(item.value_at["repeat"], calls=setting.calls)
        found = turns(copied(given, setting.calls), at, setting.path, setting.scope, self.evaluator)
        if found is None:
            names.broken()
            return
        variables = {INDEX, *(given if isinstance(given, Map) else ())}
        named = isinstance(body.get("name"), str) and not uses(body, "name", variables)
        chained = "from" in body and not uses(body, "from", variables)
        made: str | None = None
        for number, values in enumerate(found):
            said = ", ".join(f"{name} = {value}" for name, value in values.items())
            call = Call(f"in turn {number + 1} of {len(found)} ({said})", at)
            inner = replace(setting, scope=setting.scope | values, calls=(call, *setting.calls))
            turn = _Turn(f"/{number}" if named else "", names.above if number and chained else None)
            made = self._entry(body, replace(place, calls=inner.calls), inner, names, turn) or made
        if named and made is not None:
            names.alias(made.rpartition("/")[0], made, at)

    def _entry(self, item: Any, place: Location, setting: _Setting, names: Namespace, turn: _Turn) -> str | None:
        """One layer, call or group, whose `repeat` has been dealt with; the name it has where it stands."""
        self._count += 1
        if self._count > MAX_LAYERS:
            self._add("the net is too large", place, setting.path, expected=f"at most {MAX_LAYERS} layers")
            raise _TooMuch
        entry = self._evaluated(item, place, setting)
        if not isinstance(entry, Map):
            self._other(entry, place, setting, names)
            return None
        if "if" in entry and not self._is_there(entry, setting, names):
            return None
        kind = entry.get("type")
        if "layers" in entry and "type" not in entry:
            return self._group(entry, place, setting, names, turn)
        if isinstance(kind, str) and kind in self._blocks:
            return self._call(kind, entry, place, setting, names, turn)
        return self._layer(entry, place, setting, names, turn)

    def _evaluated(self, item: Any, place: Location, setting: _Setting) -> Any:
        """A copy of an entry with its expressions evaluated, but for the layers of a group."""
        if isinstance(item, str):
            entry = Map(place)
            entry.put("type", self.evaluator.text(item, setting.scope, place, setting.path), place, place)
            return entry
        if not isinstance(item, Map):
            return item
        entry = copied(item, setting.calls)
        self.evaluator.evaluate(entry, setting.scope, setting.path, ("layers",) if "type" not in entry else ())
        return entry

    def _is_there(self, entry: Map, setting: _Setting, names: Namespace) -> bool:
        at = entry.value_at["if"]
        value = entry.remove("if")
        if isinstance(value, bool) and at not in self.evaluator.failed:
            if not value and isinstance(entry.get("name"), str):
                names.left_out.add(entry["name"])
            return value
        names.broken()
        if at not in self.evaluator.failed:
            self._add("`if` must be true or false", at, f"{setting.path}.if", got=describe(value),
                      expected="true, false, or an expression such as ${depth > 2}")  # fmt: skip
        return False

    def _other(self, entry: Any, place: Location, setting: _Setting, names: Namespace) -> None:
        """Copy an entry that is not a mapping: a layer made in Python, or a value that validation refuses."""
        if not isinstance(entry, LayerFields):
            names.broken()
        elif names.prefix:
            self._add("a layer made in Python can't stand in a block or a named group", place, setting.path,
                      expected="a mapping with what a file would say")  # fmt: skip
        else:
            name = entry.name or names.fresh(str(getattr(entry, "type", "")))
            names.made(name, name)
        self._made.add(entry, place)

    def _layer(self, entry: Map, place: Location, setting: _Setting, names: Namespace, turn: _Turn) -> str | None:
        kind = entry.get("type")
        if isinstance(kind, str) and self._is_nearly_a_block(kind, entry, setting):
            names.broken()
            return None
        self._from(entry, place, setting, names, turn)
        self._renaming.rename(entry, "share", names, f"{setting.path}.share")
        local = self._name(entry, place, names, turn)
        if local in names.calls and self._is_taken(local, entry, place, setting, names):
            return None
        self._made.add(entry, place)
        if local is not None:
            names.made(local, names.prefix + local)
        return local

    def _is_nearly_a_block(self, kind: str, entry: Map, setting: _Setting) -> bool:
        """Return whether an unknown type resembles the name of a block, which is then suggested."""
        hint, at = did_you_mean(kind, self._blocks), entry.value_at["type"]
        if hint is None or kind in LAYERS or at in self.evaluator.failed:
            return False
        self._add(f"unknown layer or block {kind!r}", at, f"{setting.path}.type", hint=hint,
                  expected=f"a type of layers, or one of the blocks {listing(list(self._blocks))}")  # fmt: skip
        return True

    def _name(self, entry: Map, place: Location, names: Namespace, turn: _Turn) -> str | None:
        """The name that an entry has where it stands; in the entry it becomes the one that it has in the net."""
        given, kind = entry.get("name"), entry.get("type")
        if "name" not in entry and isinstance(kind, str) and kind:
            local = names.fresh(kind)
            entry.put("name", names.prefix + local, place, place)
            return local
        if not isinstance(given, str) or entry.value_at["name"] in self.evaluator.failed:
            names.broken()
            return None
        entry["name"] = f"{names.prefix}{given}{turn.suffix}" if given else given
        return given + turn.suffix

    def _is_taken(self, local: str, entry: Map, place: Location, setting: _Setting, names: Namespace) -> bool:
        """Whether something else here has the name of a call or group, or the name of one: both could not be read."""
        if local not in names.names and local not in names.calls:
            return False
        message = f"two layers or calls are called `{names.prefix}{local}`"
        if names.is_input(local):
            message = f"`{local}` is the name of an input"
        first = names.calls.get(local)
        at, notes = entry.value_at.get("name", place), () if first is None else (f"the first is at {first}",)
        self._add(message, at, f"{setting.path}.name", expected="another name", notes=notes)
        names.broken()
        return True

    def _from(
        self, entry: Map, place: Location, setting: _Setting, names: Namespace, turn: _Turn
    ) -> tuple[str, ...] | None:
        """What an entry reads, by the net's names; they are written into it where they are not what it would read."""
        if "from" in entry:
            return self._renaming.rename(entry, "from", names, f"{setting.path}.from", turn.reads)
        if names.above is None:
            return ()
        if names.above != self._default():
            entry.put("from", names.above, place, place)
        return (names.above,)

    def _default(self) -> str | None:
        """What the next layer of the net would read without `from`."""
        if not self._made:
            return self._first
        last = self._made[-1]
        name = last.get("name") if isinstance(last, Map) else getattr(last, "name", None)
        return name if isinstance(name, str) else None

    def _group(self, entry: Map, place: Location, setting: _Setting, names: Namespace, turn: _Turn) -> str | None:
        """A list of layers under a name of its own, or among those around it."""
        for key in entry:
            if key not in GROUP_FIELDS:
                known = list(GROUP_FIELDS)
                self._add(f"a group of layers has no field `{key}`", entry.key_at[key], f"{setting.path}.{key}",
                          expected=f"one of {listing(known)}", hint=did_you_mean(key, known))  # fmt: skip
        layers, inside = entry["layers"], names
        if not isinstance(layers, Seq):
            self._add("`layers` must be a list", entry.value_at["layers"], f"{setting.path}.layers",
                      expected="a list of layers", got=describe(layers))  # fmt: skip
            names.broken()
            return None
        sources = self._from(entry, place, setting, names, turn)
        local = self._name(entry, place, names, turn) if "name" in entry else None
        if local is not None and self._is_taken(local, entry, place, setting, names):
            return None
        if local is not None:
            inside = Namespace(f"{names.prefix}{local}/", names.block, names, above=names.above)
        if sources is not None and len(sources) > 1:
            self._add("a group of layers takes one input", entry.value_at["from"], f"{setting.path}.from",
                      expected="one name", got=listing(list(sources)),
                      hint="its layers can say more `from` each; a block has several `inputs`")  # fmt: skip
        inside.above = sources[0] if sources else inside.above
        self._list(layers, replace(setting, path=f"{setting.path}.layers", depth=setting.depth + 1), inside)
        if local is not None:
            names.adopt(local, inside, {}, place)
        return local

    def _call(
        self, block: str, entry: Map, place: Location, setting: _Setting, names: Namespace, turn: _Turn
    ) -> str | None:
        """The layers of a block, named after the call, reading what it reads."""
        if block in setting.blocks:
            chain = [*setting.blocks[setting.blocks.index(block) :], block]
            self._add(f"the block `{block}` contains itself", entry.value_at["type"], f"{setting.path}.type",
                      got=" → ".join(chain))  # fmt: skip
            names.broken()
            return None
        sources = self._from(entry, place, setting, names, turn)
        local = self._name(entry, place, names, turn)
        definition = definition_of(self._blocks[block])
        if local is not None and self._is_taken(local, entry, place, setting, names):
            return None
        if definition is None or sources is None or local is None:
            names.broken()
            return None
        call = Call(f"in `{names.prefix}{local}`, a call of the block `{block}`", place)
        path = f"{self.path}blocks.{block}"
        inner = _Setting(self.variables, path, (call, *setting.calls), (*setting.blocks, block), setting.depth + 1)
        told = len(self.evaluator.problems)
        note = (f"the block is defined at {self._blocks.key_at[block]}",)
        arguments = Arguments(definition, block, entry, call.place, note, self.evaluator, setting.scope)
        scope = arguments.scope(self.variables, setting.path, f"{path}.params", inner.calls)
        if len(sources) != len(definition.inputs):
            count = len(definition.inputs)
            self._add(
                f"the block `{block}` takes {count} {'input' if count == 1 else 'inputs'}, not {len(sources)}",
                entry.value_at.get("from", place), f"{setting.path}.from", notes=note,
                expected=f"`from` with {'a name' if count == 1 else f'{count} names'}, for "
                f"{', '.join(definition.inputs)}",
            )  # fmt: skip
        if len(self.evaluator.problems) > told:
            names.broken()
            return None
        inside = Namespace.reading(dict(zip(definition.inputs, sources, strict=True)), f"{names.prefix}{local}/", block)
        first = len(self._made)
        self._list(definition.layers, replace(inner, scope=scope, path=f"{path}.layers"), inside)
        outputs = self._outputs(definition, inside, replace(inner, scope=scope))
        if not inside.whole:
            names.broken()
        self._pass_on(entry, names, self._made[first:], inside.prefix, setting)
        names.adopt(local, inside, outputs, place)
        return local

    def _outputs(self, definition: Definition, inside: Namespace, inner: _Setting) -> dict[str, str]:
        """The outputs of a block by name, in order; `inside.above` becomes the first. Nothing where there is one."""
        if definition.outputs is None:
            return {}
        holder = Map(inner.calls[0].place)
        value, place = definition.outputs
        holder.put("outputs", copied(value, inner.calls), place, replace(place, calls=inner.calls))
        self.evaluator.evaluate(holder, inner.scope, inner.path, ())
        said = holder["outputs"]
        if isinstance(said, Map):
            for key in said:
                self._renaming.rename(said, key, inside, f"{inner.path}.outputs.{key}")
            found: dict[str, str] = dict(said)
        else:
            written = names_at(holder, "outputs")
            globals_ = self._renaming.rename(holder, "outputs", inside, f"{inner.path}.outputs")
            found = dict(zip(written.names, globals_, strict=True)) if written and globals_ else {}
        inside.above = next(iter(found.values()), inside.above)
        return found if len(found) > 1 or isinstance(said, Map) else {}

    def _pass_on(self, entry: Map, names: Namespace, made: list[Any], prefix: str, setting: _Setting) -> None:
        """What a call says of all of its layers: that they do not train, or whose parameters they use."""
        if "trainable" in entry:
            for layer in made:
                if isinstance(layer, Map) and "trainable" not in layer:
                    layer.put("trainable", entry["trainable"], entry.key_at["trainable"], entry.value_at["trainable"])
        owner = entry.get("share")
        if not isinstance(owner, str):
            return
        there = next((space.prefix for space in names.outward() if owner in space.names), None)
        for layer in made:
            if isinstance(layer, Map) and "share" not in layer and isinstance(layer.get("name"), str):
                inner = layer["name"].removeprefix(prefix)
                layer.put("share", f"{there if there is not None else ''}{owner}/{inner}", entry.key_at["share"],
                          entry.value_at["share"])  # fmt: skip


def is_plain(tree: Map) -> bool:
    """Whether the layers of a net stand for themselves."""
    layers = tree.get("layers")
    entries = layers if isinstance(layers, Seq) else ()
    return "blocks" not in tree and not any(
        isinstance(one, Map)
        and not _MAKES_SEVERAL.isdisjoint(one)
        and ("repeat" in one or "if" in one or "type" not in one)
        for one in entries
    )
