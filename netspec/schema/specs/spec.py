"""`Spec`, the base of everything that can be written in YAML, and `Registry`, the kinds of things with a `type`.

Field classes live where they belong (`layers/`, `solvers/`, `data/`); they register here under their `type`, and a
spec field annotated with `Member(registry)` accepts any of them. Resolving a type is lazy, so that a small spec pays
only for what it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from netspec.errors import InputError, Location, Problem, listing, nearest
from netspec.schema.messages.foreign import meant_by, meant_by_number
from netspec.schema.specs.members import declared
from netspec.schema.specs.plugins import Plugin, clash, plugins
from netspec.schema.yaml.tree import Map, locate


def problem(
    message: str,
    *,
    field: str | None = None,
    expected: str | None = None,
    got: str | None = None,
    hint: str | None = None,
    inside: tuple[str, int] | None = None,
) -> PydanticCustomError:
    """An error for a validator to raise; `field` names the field at fault where the model as a whole is checked.

    `inside` is a text and the character of it, from 0, that the error is at.
    """
    facts = {"text": message, "field": field, "expected": expected, "got": got, "hint": hint, "inside": inside}
    return PydanticCustomError("netspec", "{text}", facts)


class Spec(BaseModel):  # noqa: PLW1641  # pydantic makes the hash of a frozen model
    """Base of all spec classes: strict types, no unknown fields, immutable, and knows where it was written."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)

    foreign_fields: ClassVar[dict[str, str]] = {}
    """Names that other tools use for a field, with what to write instead."""

    _tree: Map | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _remember_origin(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        made = handler(data)
        if isinstance(data, Map):
            made._tree = data
        return made

    def __eq__(self, other: object) -> bool:
        """Equal classes and values; where they were written makes no difference."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    @property
    def written(self) -> Map | None:
        """The mapping this was made from, with its locations; None for one made in Python or from a bare name."""
        return self._tree

    def where(self, *path: str | int, key: bool = False) -> Location | None:
        """Where this spec, or the value at `path` in it, was written; None for one made in Python."""
        return locate(self._tree, path, key=key)[0] if self._tree is not None else None

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """What can't be done so in a training (a `TrainSpec`) that this is a part of; their paths begin at this."""
        yield from ()


def parts_of(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """A spec, and every spec in its fields, each with its dotted path."""
    yield "", spec
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        items = enumerate(value) if isinstance(value, (list, tuple)) else [("", value)]
        for index, one in items:
            for path, part in parts_of(one) if isinstance(one, Spec) else ():
                yield ".".join(filter(None, (name, str(index), path))), part


SpecT = TypeVar("SpecT", bound=Spec)


def plural(word: str) -> str:
    """`classes`, `strategies`, `layers`."""
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("s") else f"{word}s"


class Registry(Generic[SpecT]):
    """All classes of one kind (layers, losses, solvers, …) by the `type` users write."""

    def __init__(self, kind: str, tag: str = "type") -> None:
        self.kind = kind
        self.one = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
        """The kind with its article, for messages."""
        self.tag = tag
        """The key that names the class."""
        word = kind.rsplit(maxsplit=1)[-1]
        several = plural(word)
        self.group = f"netspec.{several}"
        """The group of entry points under which other packages add members."""
        self._symbol = several.upper()
        self._package: str | None = None
        self._classes: dict[str, type[SpecT]] = {}
        self._plugins: dict[str, Plugin] | None = None

    def register(self, cls: type[SpecT]) -> type[SpecT]:
        """Class decorator: make `cls` known under the `type` that it declares (the default of its tag field)."""
        name = cls.model_fields[self.tag].default
        if name in self._classes:
            raise TypeError(f"two {self.kind} classes are called {name}")
        self._classes[name] = cls
        return cls

    def lives_in(self, package: str) -> None:
        """Have the modules of `package` imported as their members are asked for; what they declare, their text says."""
        self._package = package

    def _modules(self) -> Mapping[str, str]:
        """The types that are declared in netspec, and their modules."""
        return declared(self._package).get(self._symbol, {}) if self._package else {}

    def _own(self) -> dict[str, None]:
        """The types of netspec and those registered by hand, in their order."""
        return dict.fromkeys((*self._modules(), *self._classes))

    def names(self) -> list[str]:
        """All known types, those of other packages too. Raises `InputError` where two packages add the same."""
        return [*self._own(), *(name for name in self._added() if name not in self._classes)]

    def __getitem__(self, name: str) -> type[SpecT]:
        """The class of a type. Raises `InputError` where it is another package's and can't be loaded."""
        if name not in self._classes and name in self._modules():
            import_module(self._modules()[name])
        elif name not in self._classes and name in self._added():
            self._adopt(self._added()[name])
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own() or name in self._added()

    def known(self) -> tuple[type[SpecT], ...]:
        """The classes registered so far; for modules that are read while others are being registered."""
        return tuple(self._classes.values())

    def __iter__(self) -> Iterator[type[SpecT]]:
        return iter([self[name] for name in self.names()])

    def _added(self) -> Mapping[str, Plugin]:
        """What other packages add, found when it is first asked for and imported when it is used."""
        if self._plugins is None:
            found = plugins(self.group)
            for name in found.keys() & self._own().keys():
                raise clash(name, "netspec", found[name].package)
            self._plugins = found
        return self._plugins

    def _adopt(self, plugin: Plugin) -> None:
        """Register a class of another package. Raises `InputError` where it can't be one of this kind."""
        own = [*(self[name] for name in self._modules()), *self._classes.values()]
        base = (
            next(one for one in own[0].__mro__ if one not in own and all(issubclass(cls, one) for cls in own))
            if own
            else Spec
        )
        cls: Any = plugin.load()
        tag = getattr(cls, "model_fields", {}).get(self.tag)
        fits = isinstance(cls, type) and issubclass(cls, base)
        if not fits or tag is None or tag.default != plugin.name:
            raise InputError(
                f"`{plugin.name}` of the package {plugin.package} is not {self.one} of that name",
                expected=f'a class on `{base.__name__}` with `{self.tag}: Literal["{plugin.name}"] = "{plugin.name}"`',
                got=f"{cls!r}"[:80],
            )
        if self._classes.setdefault(plugin.name, cls) is not cls:
            raise clash(plugin.name, self._classes[plugin.name].__module__, plugin.package)

    def parse(self, value: Any) -> SpecT:
        """A spec object from `value`: an object already, a mapping with `type`, or the bare name of a type.

        A bare name is taken in any of its usual spellings: `GlorotUniform`, `glorot_uniform`.
        """
        if isinstance(value, Spec):
            return value  # type: ignore[return-value]  # built in Python, validated when it was made
        if isinstance(value, str):
            name: Any = self.spelled(value)
            data: dict[str, Any] = {self.tag: name}
        elif isinstance(value, dict):
            name, data = value.get(self.tag), value
            if self.tag not in value:
                raise self._untagged(value)
        else:
            raise PydanticCustomError(
                "netspec_type",
                "{text}",
                {
                    "text": f"this is not {self.one}",
                    "expected": f"{self.one} (its name, or a mapping with `{self.tag}`)",
                    "got": describe(value),
                    "hint": meant_by_number(self.kind, value),
                },
            )
        try:
            if not isinstance(name, str) or name not in self:
                raise self._unknown(name, None if isinstance(value, str) else data)
            cls = self[name]
        except InputError as error:
            (found,) = error.problems
            field = None if isinstance(value, str) else self.tag
            raise problem(found.message, field=field, expected=found.expected, got=found.got, hint=found.hint) from None
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise PydanticCustomError("nested", "{error}", {"error": error, "data": data, "cls": cls}) from None

    def _untagged(self, value: dict[str, Any]) -> PydanticCustomError:
        tagged = next((key for key, item in value.items() if isinstance(item, str) and item in self), None)
        meant = nearest(self.tag, value) or tagged
        named = next((key for key in value if key in self), None)
        hint = f"is `{meant}` meant to be `{self.tag}`?" if meant else None
        if named is not None:
            hint = f"write `{{{self.tag}: {named}, …}}`"
        return problem(
            f"this {self.kind} has no `{self.tag}`",
            expected=f"`{self.tag}:` with one of {listing(self.names(), hint=hint)}",
            got=describe(value),
            hint=hint,
        )

    def spelled(self, name: str) -> str:
        """Return the type for a bare name in any usual spelling; the name itself if no type fits."""
        known = {one.replace("_", "").lower(): one for one in self._own()}
        found = known.get(name.replace("_", "").lower())
        return found or name

    def _unknown(self, name: Any, data: dict[str, Any] | None) -> PydanticCustomError:
        """The error for an unknown type, and for what else is wrong with `data` by the class that was meant."""
        meant = meant_by(self.kind, str(name), self.names())
        hint = meant.hint if meant else None
        told = problem(
            f"unknown {self.kind} {name!r}" if isinstance(name, str) else f"`{self.tag}` of {self.one} must be a name",
            field=None if data is None else self.tag,
            expected=f"one of {listing(self.names(), hint=hint)}",
            got=describe(name),
            hint=hint,
        )
        if data is not None and meant is not None and meant.name in self._own():
            cls = self[str(meant.name)]
            try:
                cls.model_validate({**data, self.tag: meant.name})
            except ValidationError as error:
                facts = {"error": error, "data": data, "cls": cls, "guessed": told.context}
                return PydanticCustomError("nested", "{error}", facts)
        return told


class Member:
    """Annotation of a field that takes any member of a registry: `Annotated[InitializerSpec, Member(INITIALIZERS)]`."""

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.registry.parse)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"x-netspec-registry": self.registry.kind}  # `schema/jsonschema.py` puts the union of all members here


def describe(value: Any) -> str:
    """A value as an error message shows it, with the name YAML users have for its type."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"{str(value).lower()} (a truth value)"
        case int() | float():
            return f"{value} (a number)"
        case str():
            return f"{value[:60]!r} (text)"
        case dict():
            return f"a mapping with keys {listing([str(key) for key in value], 5)}" if value else "an empty mapping"
        case list() | tuple():
            return f"a list of {len(value)}"
    return f"{value!r} ({type(value).__name__})"
