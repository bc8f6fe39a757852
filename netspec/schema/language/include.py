"""`include`: adds variables, blocks and layers of other files to a document.

`include: parts.yaml` at the top of a file adds the `vars` and `blocks` of that file; `- {include: stem.yaml}` in a
list of layers also inserts its layers there. `blocks: {trunk: {net: net.yaml}}` makes a block of a net. Paths are
relative to the file that names them. All values keep their locations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from netspec.errors import InputError, Location, Problem
from netspec.schema.language.blocks import Blocks, Entry, Include
from netspec.schema.messages.problems import problems_of
from netspec.schema.specs.paths import absolute
from netspec.schema.specs.spec import Spec, describe
from netspec.schema.yaml.reader import MAX_BYTES, read_yaml
from netspec.schema.yaml.tree import Map, Seq, copied

MAX_DEPTH = 10
MAX_FILES = 100
_DECLARE = "the file that includes both may declare it"
_DEFINITIONS = ("vars", "blocks", "layers")


def _anything(value: Any) -> Any:
    """Accept any value; it is validated in the document that includes it."""
    return value


class PartSpec(Spec):
    """A file for others to include."""

    netspec: Literal[1]
    """version of the spec language"""
    description: str = ""
    """what the file is for"""
    include: Include = Field(default=(), exclude=True)
    """files (relative to this one) whose `vars` and `blocks` are taken as if they stood here"""
    vars: Annotated[dict[str, Any], AfterValidator(_anything)] = Field(default_factory=dict)
    """values for `${…}` expressions; a file that includes this one can override them"""
    blocks: Blocks = Field(default_factory=dict)
    """layers that are written once, under a name that is then a type of layers"""
    layers: list[Entry] = Field(default_factory=list)
    """layers, for a list of layers that includes this file"""


@dataclass(frozen=True)
class _Document:
    """A document into which files are included."""

    tree: Map
    own: dict[str, set[str]]
    """The names that it defines itself, by section."""
    chain: tuple[Path, ...]
    """The files from the first to this one."""


@dataclass
class Includes:
    """Reads the files that documents include, each once, and collects their problems."""

    sections: tuple[str, ...]
    """The definitions that the document may have: `vars`, `blocks`, `layers`."""
    problems: list[Problem] = field(default_factory=list)
    complete: bool = True
    """False if a file could not be read: it may contain what is not found later."""
    _read: dict[Path, Map | None] = field(default_factory=dict)
    _checked: set[int] = field(default_factory=set)
    """The documents in `_read` that were checked as parts, by identity."""
    _bytes: int = 0

    def resolve(self, tree: Map) -> None:
        """Add the included definitions and layers to a document, in place."""
        self._resolve(tree, (_file_of(tree.origin),))

    def _resolve(self, tree: Map, chain: tuple[Path, ...]) -> None:
        own_names = {section: set(tree[section]) for section in self.sections if isinstance(tree.get(section), Map)}
        document = _Document(tree, own_names, chain)
        for name, location in _paths(tree):
            part = self._part(name, location, document)
            if part is not None and part.get("layers"):
                self._add("a file included at the top level cannot contain `layers`", location,
                          got=f"`layers` in {name}",
                          hint=f"in a list of layers write `- {{include: {name}}}`")  # fmt: skip
        if "layers" in self.sections:
            self._lists(tree, document)
        blocks = tree.get("blocks")
        for name, block in [*blocks.items()] if isinstance(blocks, Map) else ():
            if isinstance(block, Map) and isinstance(block.get("net"), str):
                self._net(name, block, document)

    def _net(self, name: str, block: Map, document: _Document) -> None:
        """Replace `net` of a block by the inputs, layers and outputs of the net; its variables become parameters."""
        path, location, key = block["net"], block.value_at["net"], block.key_at["net"]
        for other in block.keys() - {"net", "description"}:
            self._add(f"`{other}` cannot be used with `net`", block.key_at[other], f"blocks.{name}.{other}",
                      expected="`net` alone, whose inputs, layers, outputs and `vars` the block has")  # fmt: skip
        net = self._file(path, location, document)
        if net is None:
            return
        inputs, layers, variables = net.get("inputs"), net.get("layers"), net.get("vars")
        if not isinstance(inputs, Map) or not isinstance(layers, Seq) or not layers:
            self._fail(f"{path} is not a net file", location, expected="a file with `inputs` and `layers`")
            return
        block.remove("net")
        block.put("inputs", _inputs_read(inputs, layers), key, location)
        block.put("layers", _copied_layers(layers), net.key_at["layers"], net.value_at["layers"])
        if "outputs" in net:
            block.put("outputs", copied(net["outputs"]), net.key_at["outputs"], net.value_at["outputs"])
        if isinstance(variables, Map) and variables:
            block.put("params", copied(variables), net.key_at["vars"], net.value_at["vars"])
        self._merge(net, document, ("blocks",))

    def _lists(self, holder: Map, document: _Document) -> None:
        """Insert included layers into every list below `holder`: of the net, of groups, of blocks."""
        layers, blocks = holder.get("layers"), holder.get("blocks")
        if isinstance(layers, Seq):
            holder["layers"] = self._spliced(layers, document)
        for block in blocks.values() if holder is document.tree and isinstance(blocks, Map) else ():
            if isinstance(block, Map) and block.origin.file == document.tree.origin.file:  # skip included blocks
                self._lists(block, document)

    def _spliced(self, layers: Seq, document: _Document) -> Seq:
        spliced = Seq(layers.origin)
        for item, location in zip(layers, layers.value_at, strict=True):
            if not isinstance(item, Map) or "include" not in item:
                if isinstance(item, Map) and "type" not in item:
                    self._lists(item, document)
                spliced.add(item, location)
                continue
            if len(item) > 1:
                other = next(key for key in item if key != "include")
                self._add(f"`{other}` cannot be used with `include`", item.key_at[other],
                          expected="`- {include: FILE}`",
                          hint="put it into a group: `{name: …, repeat: …, layers: [{include: …}]}`")  # fmt: skip
            if not _paths(item):
                self._add("`include` needs the path of a file", item.value_at["include"], got=describe(item["include"]),
                          expected="the path of a file, or a list of them")  # fmt: skip
            for name, at in _paths(item):
                part = self._part(name, at, document)
                part_layers = part.get("layers") if part is not None else None
                if isinstance(part_layers, Seq):
                    for layer, where in zip(part_layers, part_layers.value_at, strict=True):
                        spliced.add(copied(layer), where)
        return spliced

    def _part(self, name: str, location: Location, document: _Document) -> Map | None:
        """Return the document in a file and merge its definitions; None, with a problem, if it cannot be read."""
        part = self._file(name, location, document)
        if part is not None:
            self._check(part)
            self._merge(part, document, ("vars", "blocks"))
        return part

    def _file(self, name: str, location: Location, document: _Document) -> Map | None:
        """Return the document in a file, with the files that it includes; None, with a problem, if that fails."""
        key = absolute(name, location).resolve()
        if key in document.chain:
            cycle = [*(file.name for file in document.chain[document.chain.index(key) :]), key.name]
            self._fail("these files include each other" if len(cycle) > 2 else "a file includes itself", location,
                       got=" → ".join(cycle), hint="remove one of the `include`")  # fmt: skip
            return None
        if key not in self._read:
            self._read[key] = None
            self._read[key] = self._load(name, location, (*document.chain, key))
        return self._read[key]

    def _load(self, name: str, location: Location, chain: tuple[Path, ...]) -> Map | None:
        if len(chain) > MAX_DEPTH or len(self._read) > MAX_FILES:
            self._fail("too many files are included", location, got=" → ".join(file.name for file in chain),
                       expected=f"at most {MAX_FILES}, at most {MAX_DEPTH} deep")  # fmt: skip
            return None
        folder = Path() if location.file.startswith("<") else Path(location.file).parent
        path = str(folder / Path(name).expanduser())
        try:
            tree = read_yaml(path)
            self._bytes += Path(path).stat().st_size
        except InputError as error:
            self.problems += [problem.at(location, "include") for problem in error.problems]
            self.complete = False
            return None
        if self._bytes > MAX_BYTES:
            expected = f"at most {MAX_BYTES // 2**20} MiB in total"
            self._fail("the included files are too large", location, expected=expected)
            return None
        self._resolve(tree, chain)
        return tree

    def _check(self, tree: Map) -> None:
        """Report problems of a file that is included, once."""
        if id(tree) in self._checked:
            return
        self._checked.add(id(tree))
        try:
            PartSpec.model_validate(tree)
        except ValidationError as error:
            self.problems += problems_of(error, tree, PartSpec)
        strange = [key for key in tree if key in _DEFINITIONS and key not in self.sections]
        for key in strange:
            self._add(f"a training file has no `{key}`, and includes none", tree.key_at[key], expected="`vars`")

    def _merge(self, part: Map, document: _Document, sections: tuple[str, ...]) -> None:
        """Add the definitions of a file that are missing. Variables of the including file take precedence."""
        tree = document.tree
        for section in sections:
            definitions, present = part.get(section), tree.get(section)
            if section not in self.sections or not isinstance(definitions, Map):
                continue
            if section not in tree:
                present = Map(definitions.origin)
                tree.put(section, present, part.key_at[section], part.value_at[section])
            if not isinstance(present, Map):
                continue
            for name, location in definitions.key_at.items():
                if name not in present:
                    present.put(name, copied(definitions[name]), location, definitions.value_at[name])
                elif present.key_at[name] != location and (
                    section == "blocks" or name not in document.own.get(section, ())
                ):
                    kind, why = {"blocks": ("blocks", None), "vars": ("variables", _DECLARE)}[section]
                    self._add(f"two {kind} are called `{name}`", present.key_at[name], f"{section}.{name}",
                              expected=None if why else "a different name",
                              hint=why, notes=(f"the other is at {location}",))  # fmt: skip

    def _fail(self, message: str, location: Location, **facts: Any) -> None:
        """Report a problem because of which a file is not included."""
        self.complete = False
        self._add(message, location, **facts)

    def _add(self, message: str, location: Location, path: str = "include", **facts: Any) -> None:
        self.problems.append(Problem(message, location, path, **facts))


def _file_of(location: Location) -> Path:
    return Path(location.file).resolve()


def _inputs_read(inputs: Map, layers: Seq) -> Seq:
    """Return the names of the inputs that layers read; the others are read by losses and metrics."""
    first, *_ = layers
    read = _read_names(layers)
    names = Seq(inputs.origin)
    for index, name in enumerate(inputs):
        reads_by_default = index == 0 and not (isinstance(first, Map) and "from" in first)
        if name in read or reads_by_default:
            names.add(name, inputs.key_at[name])
    return names


def _copied_layers(layers: Seq) -> Seq:
    """Return a copy of a net's layers without `trainable: true`, the default, which contradicts a freeze of the block.

    A net that netspec itself wrote states all defaults.
    """
    copy: Seq = copied(layers)
    for layer in copy:
        if isinstance(layer, Map) and layer.get("trainable") is True:
            layer.remove("trainable")
    return copy


def _read_names(layers: Seq) -> set[str]:
    """Return the names at `from` in layers and groups of layers."""
    names: set[str] = set()
    for layer in layers:
        if isinstance(layer, Map):
            source, inner = layer.get("from"), layer.get("layers")
            names |= {source} if isinstance(source, str) else set()
            names |= {name for name in source if isinstance(name, str)} if isinstance(source, Seq) else set()
            names |= _read_names(inner) if isinstance(inner, Seq) else set()
    return names


def _paths(holder: Map) -> list[tuple[str, Location]]:
    """Return the paths at `include`; empty if the value is not a path or a list of paths."""
    value = holder.get("include")
    if isinstance(value, str):
        return [(value, holder.value_at["include"])]
    if isinstance(value, Seq) and all(isinstance(path, str) for path in value):
        return list(zip(value, value.value_at, strict=True))
    return []
