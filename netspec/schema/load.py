"""Loads `NetSpec` and `TrainSpec` from files or Python data, and reports all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from netspec.errors import InputError, Location, Problem, SpecError, by_location, did_you_mean, listing
from netspec.schema.bundled import model_path
from netspec.schema.language.expand import Expander, is_plain
from netspec.schema.language.expressions import Unknown
from netspec.schema.language.include import Includes
from netspec.schema.language.interpolation import Evaluator, Scope, escaped
from netspec.schema.language.overrides import (
    Override,
    apply_overrides,
    is_of_missing_layer,
    overrides_from_mapping,
    parse_overrides,
)
from netspec.schema.messages.problems import problems_of
from netspec.schema.specs.annotations import optional_blocks
from netspec.schema.specs.data import DataSpec
from netspec.schema.specs.freeze import freeze
from netspec.schema.specs.init_from import InitFromSpec
from netspec.schema.specs.links import link_problems
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.spec import Spec
from netspec.schema.yaml.python_data import from_python
from netspec.schema.yaml.reader import read_yaml
from netspec.schema.yaml.tree import Map

if TYPE_CHECKING:
    from netspec.schema.specs.card import CardSpec
    from netspec.schema.specs.train import TrainSpec

Source = str | PathLike[str] | Mapping[str, Any]
"""A path of a YAML file or of a run directory, or the same as Python data."""
Overrides = Sequence[str | Override] | Mapping[str, Any]
"""Changes as on the command line (`["solver.learning_rate=0.1"]`), or as Python data (`{"solver": {…}}`)."""
Kind = Literal["net", "train"]

RESOLVED_SPEC = "spec.yaml"
"""File of a run directory: the spec of the run with all values."""
SPECS = (RESOLVED_SPEC, "train.yaml", "net.yaml")
"""Specs of a folder; the first that exists is used."""

SpecT = TypeVar("SpecT", bound=Spec)

NET_DEFINITIONS = ("vars", "blocks", "layers")
TRAIN_DEFINITIONS = ("vars",)
"""Sections that files included by a net or a training may define."""

_NET_KEYS = frozenset({"inputs", "layers", "outputs", "losses", "metrics"})
_TRAIN_KEYS = frozenset({"net", "data", "solver", "train"})


def load_net(source: Source, overrides: Overrides = ()) -> NetSpec:
    """Load a net file. Raises `SpecError` with all problems, `InputError` if the file does not exist."""
    spec = _load(source, overrides, "net")
    assert isinstance(spec, NetSpec)
    return spec


def load_train(source: Source, overrides: Overrides = ()) -> TrainSpec:
    """Load a training file with the net that it names. Raises `SpecError` with all problems of both files."""
    spec = _load(source, overrides, "train")
    assert not isinstance(spec, NetSpec)
    return spec


def load_spec(source: Source, overrides: Overrides = ()) -> NetSpec | TrainSpec:
    """Load a net file or a training file. Raises the errors of `load_net` and `load_train`."""
    return _load(source, overrides, None)


def load_card(path: str | Path) -> CardSpec:
    """Load the `card.yaml` of a model of the zoo. Raises `SpecError` with all problems."""
    from netspec.schema.specs.card import CardSpec

    tree = read_yaml(path)
    try:
        return CardSpec.model_validate(tree)
    except ValidationError as error:
        raise SpecError(problems_of(error, tree, CardSpec)) from None


def load_data(source: Source, overrides: Overrides) -> tuple[DataSpec | None, InitFromSpec | None]:
    """Load `data` and `init_from` of a file whose other sections may be wrong; None for a section that is not valid.

    Raises `InputError` if the file cannot be read, or is of no kind.
    """
    load = _Loading()
    tree = _read(source)
    if _kind(tree, None) == "train":
        load.train(tree, load.overrides(overrides))
    return load.section(DataSpec, tree, "data"), load.section(InitFromSpec, tree, "init_from")


def _load(source: Source, overrides: Overrides, expected: Kind | None) -> NetSpec | TrainSpec:
    load = _Loading()
    tree = _read(source)
    kind = _kind(tree, expected)
    changes = load.overrides(overrides)
    spec = load.train(tree, changes) if kind == "train" else load.net(tree, changes)
    if load.problems or spec is None:
        raise SpecError(_without_duplicates(load.problems))
    return spec


def _read(source: object) -> Map:
    if isinstance(source, Map):  # parsed already, with the location of each value
        return source
    if isinstance(source, Mapping):
        return from_python(source)
    if isinstance(source, (str, PathLike)) and isinstance(path := fspath(source), str):
        return read_yaml(spec_file(path))
    raise InputError(
        "a spec is given in another form", expected="the path of a YAML file, or a mapping with what it would say",
        got=f"{source!r:.80}",
    )  # fmt: skip


def spec_file(path: str) -> str:
    """Return the spec in a folder, which may be given by the name of a zoo model; any other path unchanged."""
    path = model_path(path)
    specs = (Path(path, name) for name in SPECS)
    return next((str(spec) for spec in specs if spec.is_file()), path)


def _kind(tree: Map, expected: Kind | None) -> Kind:
    """Return the kind of a document, decided by its keys. Raises `SpecError` if it is not the `expected` kind."""
    net, train = len(_NET_KEYS & tree.keys()), len(_TRAIN_KEYS & tree.keys())
    kind: Kind | None = None if net == train == 0 else "train" if train >= net else "net"
    if kind is None and expected is None:
        from netspec.schema.specs.train import TrainSpec

        unknown = [key for key in tree if key not in NetSpec.model_fields | TrainSpec.model_fields]
        near = next(filter(None, (did_you_mean(key, _NET_KEYS | _TRAIN_KEYS) for key in unknown)), None)
        raise SpecError(
            "this is neither a net file nor a training file",
            location=tree.origin,
            expected="a net (`inputs`, `layers`) or a training file (`net`, `data`, `solver`, `train`)",
            got=f"keys {listing(list(tree))}" if tree else "an empty mapping",
            hint=near,
        )
    if expected is None or kind is None or kind == expected:
        return expected or kind or "net"
    names = {"net": "a net", "train": "a training"}
    other = tree.get("net")
    raise SpecError(
        f"this is {names[kind]} file, expected {names[expected]} file",
        location=tree.origin,
        expected="`inputs` and `layers`" if expected == "net" else "`net`, `data`, `solver` and `train`",
        got=f"keys {listing(list(tree))}",
        hint=f"its net is `{_from_current_folder(other, tree.value_at['net'])}`" if isinstance(other, str) else None,
    )


def _without_duplicates(problems: Sequence[Problem]) -> list[Problem]:
    """Sort problems by file and line, and drop duplicates, which aliases cause."""
    unique: dict[tuple[object, str], Problem] = {}
    for problem in problems:
        unique.setdefault((problem.location or problem.path, problem.message), problem)
    return sorted(unique.values(), key=by_location)


@dataclass
class _Loading:
    """The problems found so far, and the evaluator, which knows the values that are unknown because of them."""

    problems: list[Problem] = field(default_factory=list)
    evaluator: Evaluator = field(default_factory=Evaluator)

    def overrides(self, overrides: Overrides) -> list[Override]:
        """Parse the requested changes; invalid ones become problems."""
        if isinstance(overrides, Mapping):
            return overrides_from_mapping(overrides)
        changes: list[Override] = []
        for line, item in enumerate(overrides, 1):
            if isinstance(item, Override):
                changes.append(item)
                continue
            try:
                changes += parse_overrides([item], line)
            except SpecError as error:
                self.problems += error.problems
        return changes

    def net(self, tree: Map, changes: Sequence[Override]) -> NetSpec | None:
        """Load a net from its own document."""
        if not self._resolve_includes(tree, NET_DEFINITIONS):
            return None
        declared = _variables(tree)
        late = [] if is_plain(tree) else [change for change in changes if is_of_missing_layer(tree, change.path)]
        self.problems += apply_overrides(
            tree, [change for change in changes if change not in late], optional_blocks(NetSpec)
        )
        self._report_undeclared(changes, declared)
        links = self._expand_and_link(tree, tree, (), self.evaluator.scope(tree), late)
        return self._validated(NetSpec, tree, links)

    def _resolve_includes(self, tree: Map, sections: tuple[str, ...]) -> bool:
        """Add the definitions of included files; return whether all files could be read."""
        includes = Includes(sections)
        includes.resolve(tree)
        self.problems += includes.problems
        return includes.complete

    def _expand_and_link(
        self, net: Map, root: Map, prefix: tuple[str, ...], scope: Scope, late: Sequence[Override]
    ) -> list[Problem]:
        """Evaluate a net's document, expand its layers, apply the `late` overrides of expanded layers, check names."""
        path, complete = ".".join(prefix), True
        if is_plain(net):
            self.evaluator.evaluate(net, scope, path)
        else:
            self.evaluator.evaluate(net, scope, path, skip=("vars", "blocks", "layers"))
            expander = Expander(self.evaluator, scope, f"{path}." if path else "")
            expander.expand(net)
            complete = expander.complete
            evaluated = [
                replace(change, value=self.evaluator.value(change.value, scope, change.location, "")) for change in late
            ]
            self.problems += apply_overrides(root, evaluated)
        return link_problems(net, root, prefix, self.evaluator.failed, complete=complete)

    def train(self, tree: Map, changes: Sequence[Override]) -> TrainSpec | None:
        """Load a training, with its net from the file that it names or from the same document."""
        from netspec.schema.specs.train import TrainSpec  # a net file is checked faster without it

        if not self._resolve_includes(tree, TRAIN_DEFINITIONS):
            return None
        declared = _variables(tree)
        changes = [*_replaced_lengths(tree, changes), *changes]
        net_changes = [change for change in changes if change.path[0] == "net" and len(change.path) > 1]
        self.problems += apply_overrides(
            tree, [change for change in changes if change not in net_changes], optional_blocks(TrainSpec)
        )
        scope = self.evaluator.scope(tree)
        self.evaluator.evaluate(tree, scope, skip=("vars", "net"))
        inline = isinstance(tree.get("net"), Map)
        net = self._net_of(tree, scope)
        links: list[Problem] = []
        if net is not None:
            layer_changes = () if is_plain(net) else net_changes
            late = [change for change in layer_changes if is_of_missing_layer(net, change.path[1:])]
            self.problems += apply_overrides(tree, [change for change in net_changes if change not in late])
            net = tree["net"]
            self._report_undeclared(changes, declared | _variables(net))
            self._report_replaced(net_changes, declared)
            self._shared_variables(tree, net)
            net_scope = self.evaluator.scope(net, scope if inline else None)
            links = self._expand_and_link(net, tree, ("net",), net_scope, late)
            self.problems += freeze(tree, net) if not links and not self.evaluator.problems else []
        elif "net" not in tree or not self._failed(tree.value_at["net"]):
            self._report_undeclared(changes, declared)
        spec = self._validated(TrainSpec, tree, links)
        self.problems += spec.clashes() if spec is not None else ()
        return spec

    def _net_of(self, tree: Map, scope: Scope) -> Map | None:
        """Replace the path of the training's net by its document; None if it is not a net."""
        named = tree.get("net")
        if isinstance(named, Map):
            return self._with_includes(tree, named, tree.value_at["net"])
        if not isinstance(named, str):
            return None
        location = tree.value_at["net"]
        path = self.evaluator.text(named, scope, location, "net")
        if self._failed(location):
            return None
        if not isinstance(path, str):  # an expression with a value that is not text; validation reports it
            tree["net"] = path
            return None
        try:
            net = read_yaml(_from_current_folder(path, location))
            _kind(net, "net")
        except InputError as error:
            self.problems += [problem.at(location, "net") for problem in error.problems]
            self.evaluator.failed.add(location)
            return None
        tree.put("net", net, tree.key_at["net"], net.origin)
        return self._with_includes(tree, net, location)

    def _with_includes(self, tree: Map, net: Map, location: Location) -> Map | None:
        """Add included definitions to the net's document; None, and no further checks of the net, if that fails."""
        if self._resolve_includes(net, NET_DEFINITIONS):
            return net
        tree.put("net", None, tree.key_at["net"], location)
        self.evaluator.failed.add(location)
        return None

    def _failed(self, location: Location) -> bool:
        return location in self.evaluator.failed

    def _shared_variables(self, tree: Map, net: Map) -> None:
        """For variables that both files declare, replace the net's values by those of the training file."""
        train_vars, net_vars = tree.get("vars"), net.get("vars")
        if isinstance(train_vars, Map) and isinstance(net_vars, Map):
            for name in train_vars.keys() & net_vars.keys():
                value, location = train_vars[name], train_vars.value_at[name]
                is_evaluated = not isinstance(self.evaluator.evaluated(value, location), Unknown)
                net_vars.put(name, escaped(value) if is_evaluated else value, net_vars.key_at[name], location)

    def _report_undeclared(self, changes: Sequence[Override], declared: set[str]) -> None:
        """Report overrides of variables that no file declares, because they would have no effect."""
        for change in changes:
            if change.path[0] == "vars" and len(change.path) > 1 and not change.remove:
                name = ".".join(change.path[1:])
                if name not in declared and change.path[1] not in declared:
                    self.problems.append(
                        Problem(
                            f"no variable `{name}` is declared",
                            change.key_location,
                            ".".join(change.path),
                            expected=f"one of {listing(sorted(declared))}"
                            if declared
                            else "a name declared under `vars`",
                            hint=did_you_mean(name, declared),
                        )
                    )

    def _report_replaced(self, changes: Sequence[Override], declared: set[str]) -> None:
        """Report overrides of the net's variables that the training file declares too: its values replace them."""
        for change in changes:
            if change.path[1] == "vars" and ".".join(change.path[2:]) in declared:
                name, own = ".".join(change.path), ".".join(change.path[1:])
                replaced = f"`{name}` has no effect: `{own}` of the training file replaces it"
                self.problems.append(Problem(replaced, change.key_location, name, expected=f"an override of `{own}`"))

    def _validated(self, cls: type[SpecT], tree: Map, links: list[Problem]) -> SpecT | None:
        """Validate the document; None if it is invalid. Problems that follow from an unknown value are not reported."""
        spec: SpecT | None = None
        problems: list[Problem] = list(links)
        try:
            spec = cls.model_validate(tree)
        except ValidationError as error:
            problems = problems_of(error, tree, cls) + problems
        self.problems += self.evaluator.problems
        self.problems += [problem for problem in problems if problem.location not in self.evaluator.failed]
        return spec

    def section(self, cls: type[SpecT], tree: Map, name: str) -> SpecT | None:
        """Validate one section of a document; None if it is absent, invalid or has a value that is unknown."""
        if name not in tree:
            return None
        try:
            return cls.model_validate(self.evaluator.evaluated(tree[name], tree.value_at[name]))
        except ValidationError:
            return None


def _replaced_lengths(tree: Map, changes: Sequence[Override]) -> Iterator[Override]:
    """Yield the removal of the file's `max_epochs` if an override sets `max_steps`, and the reverse."""
    loop = tree.get("train")
    overridden = {change.path[1]: change for change in changes if change.path[0] == "train" and len(change.path) == 2}
    for name, other in (("max_steps", "max_epochs"), ("max_epochs", "max_steps")):
        change = overridden.get(name)
        replaces = change is not None and change.value is not None and other not in overridden
        if change is not None and replaces and isinstance(loop, Map) and other in loop:
            yield Override(("train", other), None, change.location, remove=True)


def _variables(tree: Map) -> set[str]:
    variables = tree.get("vars")
    return set(variables) if isinstance(variables, Map) else set()


def _from_current_folder(path: str, written: Location) -> str:
    """Return a path relative to the current folder for one that is relative to the file of `written`."""
    folder = Path() if written.file.startswith("<") else Path(written.file).parent
    return str(folder / Path(path).expanduser())
