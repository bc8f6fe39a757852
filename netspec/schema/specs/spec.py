"""`Spec`, the base of all classes that describe YAML, and `Registry`, the classes of one kind by `type`.

The classes of a kind are defined in `layers/`, `solvers/`, `data/` and other packages and register under their `type`.
A field with the annotation `Member(registry)` accepts any of them. Modules are imported when a spec names their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from inspect import get_annotations
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
from netspec.schema.messages.foreign import number_replacement, suggest
from netspec.schema.specs.members import declared_members
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
    """Create an error for a validator to raise; a validator of a whole model names the wrong `field`.

    `inside` is a text and the offset of the error in it.
    """
    context = {"text": message, "field": field, "expected": expected, "got": got, "hint": hint, "inside": inside}
    return PydanticCustomError("netspec", "{text}", context)


class Spec(BaseModel):  # noqa: PLW1641  # pydantic makes the hash of a frozen model
    """Base of all spec classes: immutable, with strict types, without unknown fields, and with locations."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)

    foreign_fields: ClassVar[dict[str, str]] = {}
    """Names of fields in other tools, each with a hint."""

    _tree: Map | None = PrivateAttr(default=None)

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        super().__pydantic_init_subclass__(**keywords)
        _shorten_class_variables(cls)

    @model_validator(mode="wrap")
    @classmethod
    def _remember_origin(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        spec = handler(data)
        if isinstance(data, Map):
            spec._tree = data
        return spec

    def __eq__(self, other: object) -> bool:
        """Whether class and values are equal; locations are ignored."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    @property
    def written(self) -> Map | None:
        """The mapping in the document, with locations; None for a spec from Python or from a bare name."""
        return self._tree

    def where(self, *path: str | int, key: bool = False) -> Location | None:
        """Return the location of this spec, or of the value at `path` in it; None for a spec from Python."""
        return locate(self._tree, path, key=key)[0] if self._tree is not None else None

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield the conflicts with the rest of `training`, a `TrainSpec`. Their paths are relative to this spec."""
        yield from ()


def _shorten_class_variables(cls: type[Spec]) -> None:
    """Replace the annotations of class variables by a bare `ClassVar`, which is all that pydantic needs to know.

    Pydantic evaluates the text of each again in every subclass, which takes a tenth of the time of `netspec check`.
    """
    cls.__annotations__ = {
        name: ClassVar if isinstance(annotation, str) and annotation.startswith("ClassVar") else annotation
        for name, annotation in get_annotations(cls).items()
    }


_shorten_class_variables(Spec)


def parts_of(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """Yield a spec and all specs in its fields, each with its dotted path."""
    yield "", spec
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, dict):
            items: Iterable[tuple[object, Any]] = value.items()
        else:
            items = enumerate(value) if isinstance(value, (list, tuple)) else [("", value)]
        for index, item in items:
            for path, part in parts_of(item) if isinstance(item, Spec) else ():
                yield ".".join(filter(None, (name, str(index), path))), part


SpecT = TypeVar("SpecT", bound=Spec)


def plural(word: str) -> str:
    """Return the plural of a word: `classes`, `strategies`, `layers`."""
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("s") else f"{word}s"


class Registry(Generic[SpecT]):
    """The classes of one kind (layers, losses, solvers, …) by their `type` in YAML."""

    def __init__(self, kind: str, tag: str = "type", noun: str | None = None) -> None:
        self.kind = kind
        self.with_article = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
        """The kind with its article, for messages."""
        self.noun = noun or kind
        """The word for the kind in messages about unknown types."""
        self.tag = tag
        """The key that names the class."""
        word = kind.rsplit(maxsplit=1)[-1]
        words = plural(word)
        self.group = f"netspec.{words}"
        """The group of entry points under which other packages add members."""
        self._symbol = words.upper()
        self._package: str | None = None
        self._classes: dict[str, type[SpecT]] = {}
        self._plugins: dict[str, Plugin] | None = None

    def register(self, cls: type[SpecT]) -> type[SpecT]:
        """Class decorator: register `cls` under its `type`, the default of its tag field."""
        name = cls.model_fields[self.tag].default
        if name in self._classes:
            raise TypeError(f"two {self.kind} classes are called {name}")
        self._classes[name] = cls
        return cls

    def lives_in(self, package: str) -> None:
        """Search the modules of `package` for members, which are imported when they are needed."""
        self._package = package

    def _modules(self) -> Mapping[str, str]:
        """Return the types that netspec declares, with their modules."""
        return declared_members(self._package).get(self._symbol, {}) if self._package else {}

    def _own(self) -> dict[str, None]:
        """Return the types of netspec and those that were registered, in order."""
        return dict.fromkeys((*self._modules(), *self._classes))

    def names(self) -> list[str]:
        """Return all types, also of other packages. Raises `InputError` if two packages add the same type."""
        return [*self._own(), *(name for name in self._found_plugins() if name not in self._classes)]

    def __getitem__(self, name: str) -> type[SpecT]:
        """Return the class of a type. Raises `InputError` if the class of another package cannot be loaded."""
        if name not in self._classes and name in self._modules():
            import_module(self._modules()[name])
        elif name not in self._classes and name in self._found_plugins():
            self._register_plugin(self._found_plugins()[name])
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own() or name in self._found_plugins()

    def registered(self) -> tuple[type[SpecT], ...]:
        """Return the classes that are registered so far, without importing others."""
        return tuple(self._classes.values())

    def __iter__(self) -> Iterator[type[SpecT]]:
        return iter([self[name] for name in self.names()])

    def _found_plugins(self) -> Mapping[str, Plugin]:
        """Return the classes of other packages by type, which are not imported yet."""
        if self._plugins is None:
            by_name = plugins(self.group)
            for name in by_name.keys() & self._own().keys():
                raise clash(name, "netspec", by_name[name].package)
            self._plugins = by_name
        return self._plugins

    def _register_plugin(self, plugin: Plugin) -> None:
        """Register a class of another package. Raises `InputError` if it is not of this kind."""
        family = [*(self[name] for name in self._modules()), *self._classes.values()]
        base = (
            next(
                parent
                for parent in family[0].__mro__
                if parent not in family and all(issubclass(cls, parent) for cls in family)
            )
            if family
            else Spec
        )
        cls: Any = plugin.load()
        tag = getattr(cls, "model_fields", {}).get(self.tag)
        is_member = isinstance(cls, type) and issubclass(cls, base)
        if not is_member or tag is None or tag.default != plugin.name:
            raise InputError(
                f"`{plugin.name}` of the package {plugin.package} is not {self.with_article} of that name",
                expected=f'a class on `{base.__name__}` with `{self.tag}: Literal["{plugin.name}"] = "{plugin.name}"`',
                got=f"{cls!r}"[:80],
            )
        if self._classes.setdefault(plugin.name, cls) is not cls:
            raise clash(plugin.name, self._classes[plugin.name].__module__, plugin.package)

    def parse(self, value: Any) -> SpecT:
        """Convert `value` to a spec: from a spec, a mapping with `type`, or the name of a type.

        A name may be spelled in any usual way: `GlorotUniform`, `glorot_uniform`.
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
                    "text": f"{self.with_article} must be a name or a mapping",
                    "expected": f"the name of a {self.tag}, or a mapping with `{self.tag}`",
                    "got": describe(value),
                    "hint": number_replacement(self.kind, value),
                },
            )
        try:
            if not isinstance(name, str) or name not in self:
                raise self._unknown(name, None if isinstance(value, str) else data)
            cls = self[name]
        except InputError as error:
            (cause,) = error.problems
            field = None if isinstance(value, str) else self.tag
            raise problem(cause.message, field=field, expected=cause.expected, got=cause.got, hint=cause.hint) from None
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise PydanticCustomError("nested", "{error}", {"error": error, "data": data, "cls": cls}) from None

    def _untagged(self, value: dict[str, Any]) -> PydanticCustomError:
        key_of_type = next((key for key, item in value.items() if isinstance(item, str) and item in self), None)
        misspelt_tag = nearest(self.tag, value) or key_of_type
        type_as_key = next((key for key in value if key in self), None)
        hint = f"is `{misspelt_tag}` meant to be `{self.tag}`?" if misspelt_tag else None
        if type_as_key is not None:
            hint = f"write `{{{self.tag}: {type_as_key}, …}}`"
        return problem(
            f"this {self.kind} has no `{self.tag}`",
            expected=f"`{self.tag}:` with one of {listing(self.names(), hint=hint)}",
            got=describe(value),
            hint=hint,
        )

    def spelled(self, name: str) -> str:
        """Return the type for a name in any usual spelling; the name itself if there is no such type."""
        by_letters = {type_.replace("_", "").lower(): type_ for type_ in self._own()}
        return by_letters.get(name.replace("_", "").lower()) or name

    def _unknown(self, name: Any, data: dict[str, Any] | None) -> PydanticCustomError:
        """Return the error for an unknown type, with other errors in `data` if the class can be guessed."""
        suggestion = suggest(self.kind, str(name), self.names())
        hint = suggestion.hint if suggestion else None
        error = problem(
            f"unknown {self.noun} {name!r}"
            if isinstance(name, str)
            else f"`{self.tag}` of {self.with_article} must be a name",
            field=None if data is None else self.tag,
            expected=f"one of {listing(self.names(), hint=hint)}",
            got=describe(name),
            hint=hint,
        )
        if data is not None and suggestion is not None and suggestion.name in self._own():
            cls = self[str(suggestion.name)]
            try:
                cls.model_validate({**data, self.tag: suggestion.name})
            except ValidationError as nested:
                context = {"error": nested, "data": data, "cls": cls, "guessed": error.context}
                return PydanticCustomError("nested", "{error}", context)
        return error


class Member:
    """Annotation of a field that accepts any member of a registry: `Annotated[Spec, Member(INITIALIZERS)]`."""

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.registry.parse)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"x-netspec-registry": self.registry.kind}  # `json_schema.py` replaces it by the union of all members


def describe(value: Any) -> str:
    """Describe a value for an error message, with YAML's name for its type."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"{str(value).lower()} (a boolean)"
        case int() | float():
            return f"{value} (a number)"
        case str():
            return f"{value[:60]!r} (text)"
        case dict():
            return f"a mapping with keys {listing([str(key) for key in value], 5)}" if value else "an empty mapping"
        case list() | tuple():
            return (_as_yaml(value) or f"a list of {len(value)}") if value else "an empty list"
    return f"{value!r} ({type(value).__name__})"


LONGEST_SHOWN_LIST = 60
"""Number of characters up to which a message shows the items of a list."""


def _as_yaml(value: object) -> str | None:
    """Return a short list of numbers, texts and lists as in YAML; None for other values."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float() | str():
            return repr(value)
        case list() | tuple():
            items = [_as_yaml(item) for item in value[:LONGEST_SHOWN_LIST]]
            shown = f"[{', '.join(filter(None, items))}]"
            return shown if None not in items and len(shown) <= LONGEST_SHOWN_LIST else None
    return None
