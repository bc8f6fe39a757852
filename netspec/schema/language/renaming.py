"""The net's names in place of those that are written, which blocks and groups have to themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netspec.errors import Location, Problem, did_you_mean, listing
from netspec.schema.language.definitions import names_at
from netspec.schema.language.interpolation import Evaluator
from netspec.schema.language.namespace import Namespace
from netspec.schema.yaml.tree import Map, Seq


@dataclass(frozen=True)
class Renaming:
    """Renames in a document; `evaluator` collects what is wrong."""

    evaluator: Evaluator

    def net(self, tree: Map, names: Namespace, path: str) -> None:
        """Parts of a net that refer to layers. `path` is the path of its document, with a trailing dot."""
        self.rename(tree, "outputs", names, f"{path}outputs")
        for key in ("losses", "metrics"):
            entries = tree.get(key)
            for index, entry in enumerate(entries if isinstance(entries, Seq) else ()):
                if isinstance(entry, Map):
                    for field_ in ("from", "sample_weight"):
                        self.rename(entry, field_, names, f"{path}{key}.{index}.{field_}")
        expect = tree.get("expect")
        outputs = expect.get("outputs") if isinstance(expect, Map) else None
        if isinstance(outputs, Map):
            self._rename_keys(outputs, names, f"{path}expect.outputs")

    def _rename_keys(self, outputs: Map, names: Namespace, path: str) -> None:
        for key in list(outputs):
            name = names.find(key)
            if name is None or name == key:
                continue
            place, at = outputs.key_at[key], outputs.value_at[key]
            if name in outputs:
                self._add(f"`{key}` is `{name}`, whose shape is said already", place, f"{path}.{key}",
                          notes=(f"that is at {outputs.key_at[name]}",))  # fmt: skip
                continue
            outputs.put(name, outputs.remove(key), place, at)

    def rename(
        self, holder: Map, key: str, names: Namespace, path: str, reads: str | None = None
    ) -> tuple[str, ...] | None:
        """Put the net's names in place of those written at `key`; None where they can't be read."""
        written = names_at(holder, key)
        if written is None or not self.evaluator.failed.isdisjoint(written.places):
            if key in holder:
                names.broken()
            return None
        found = [self._found(name, at, names, path) for name, at in zip(written.names, written.places, strict=True)]
        if reads is not None:
            found[0] = reads
        value = holder[key]
        if isinstance(value, Seq):
            value[:] = found
        else:
            holder[key] = found[0]
        return tuple(found)

    def _found(self, name: str, place: Location, names: Namespace, path: str) -> str:
        """Return the name in the net; if there is none, the name itself, with a problem inside a block."""
        found = names.find(name)
        if found is not None or not names.whole:
            return name if found is None else found
        if names.is_left_out(name):
            self._add(f"`{name}` is left out, as its `if` is false", place, path,
                      expected=f"one of {listing(names.near())}")  # fmt: skip
        elif names.block is not None or any(name.startswith(f"{call}.") for call in names.outputs):
            what = f"the block `{names.block}` has no layer or input named `{name}`"
            self._add(
                what if names.block is not None else f"there is no output named `{name}`", place, path,
                expected=f"one of {listing(names.near())}",
                hint=did_you_mean(name, list(names.readable())),
            )  # fmt: skip
        else:
            return name  # told with all the names of the net
        self.evaluator.failed.add(place)
        return name

    def _add(self, message: str, place: Location, path: str, **facts: Any) -> None:
        self.evaluator.problems.append(Problem(message, place, path, **facts))
