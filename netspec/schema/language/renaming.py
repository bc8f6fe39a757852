"""Replaces local names of layers, as written in blocks and groups, by their names in the net."""

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
    """Renames in a document; `evaluator` collects the problems."""

    evaluator: Evaluator

    def net(self, tree: Map, names: Namespace, path: str) -> None:
        """Rename layers in the parts of a net that refer to them. `path` is its document's, with a trailing dot."""
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
            location, at = outputs.key_at[key], outputs.value_at[key]
            if name in outputs:
                self._add(f"`{key}` is `{name}`, which has an expected shape already", location, f"{path}.{key}",
                          notes=(f"the other is at {outputs.key_at[name]}",))  # fmt: skip
                continue
            outputs.put(name, outputs.remove(key), location, at)

    def rename(
        self, holder: Map, key: str, names: Namespace, path: str, first_source: str | None = None
    ) -> tuple[str, ...] | None:
        """Replace the name or names at `key` by those in the net; None if they cannot be read."""
        local = names_at(holder, key)
        if local is None or not self.evaluator.failed.isdisjoint(local.locations):
            if key in holder:
                names.mark_incomplete()
            return None
        in_net = [
            self._name_in_net(name, at, names, path) for name, at in zip(local.names, local.locations, strict=True)
        ]
        if first_source is not None:
            in_net[0] = first_source
        value = holder[key]
        if isinstance(value, Seq):
            value[:] = in_net
        else:
            holder[key] = in_net[0]
        return tuple(in_net)

    def _name_in_net(self, name: str, location: Location, names: Namespace, path: str) -> str:
        """Return the name in the net; if there is none, the name itself, with a problem inside a block."""
        name_in_net = names.find(name)
        if name_in_net is not None or not names.complete:
            return name if name_in_net is None else name_in_net
        if names.is_left_out(name):
            self._add(f"`{name}` is not in the net, because its `if` is false", location, path,
                      expected=f"one of {listing(names.direct_names())}")  # fmt: skip
        elif names.block is not None or any(name.startswith(f"{call}.") for call in names.outputs):
            in_block = f"the block `{names.block}` has no layer or input named `{name}`"
            self._add(
                in_block if names.block is not None else f"there is no output named `{name}`", location, path,
                expected=f"one of {listing(names.direct_names())}",
                hint=did_you_mean(name, list(names.readable())),
            )  # fmt: skip
        else:
            return name  # reported by the check of all names of the net
        self.evaluator.failed.add(location)
        return name

    def _add(self, message: str, location: Location, path: str, **facts: Any) -> None:
        self.evaluator.problems.append(Problem(message, location, path, **facts))
