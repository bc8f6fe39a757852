"""The values of a net and of its training that `netspec search` varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.tools.init.files import entry

Values = Mapping[str, Any]
"""Values to try: `low` and `high`, with `log` or `step`, or `choices`."""
DROPOUT: Values = {"low": 0.0, "high": 0.6}


class SearchSpace:
    """Collects the values to search while the files are written, or nothing for files without `search`."""

    def __init__(self, *, searched: bool) -> None:
        self.searched = searched
        self._variables: dict[str, dict[str, tuple[Any, str]]] = {"net.vars": {}, "vars": {}}
        self._fields: dict[str, Values] = {}

    def net_variable(self, name: str, value: Any, values: Values, why: str) -> Any:
        """Declare a variable of the net; return the expression that reads it, or the value if nothing is searched."""
        return self._variable("net.vars", name, value, values, why)

    def scaled_widths(self, widths: Sequence[int], why: str) -> list[Any]:
        """Declare a variable `width`, the first of the widths; return all of them as multiples of it."""
        first = widths[0]
        self.net_variable("width", first, {"low": first // 2, "high": 2 * first, "step": first // 2}, why)
        factors = [width // first for width in widths]
        if not self.searched:
            return list(widths)
        return ["${width}" if factor == 1 else f"${{{factor} * width}}" for factor in factors]

    def variable(self, name: str, value: Any, values: Values, why: str) -> Any:
        """Do the same for a variable of the training file."""
        return self._variable("vars", name, value, values, why)

    def field(self, name: str, values: Values) -> None:
        """Add a field of the training file, which contains its value."""
        self._fields[name] = values

    def _variable(self, section: str, name: str, value: Any, values: Values, why: str) -> Any:
        if not self.searched:
            return value
        self._variables[section][name] = value, why
        self._fields[f"{section}.{name}"] = values
        return f"${{{name}}}"

    def net_lines(self) -> list[str]:
        """Return `vars` of the net file, if there are any."""
        return self._declarations("net.vars")

    def train_lines(self) -> list[str]:
        """Return `vars` of the training file, if there are any."""
        return self._declarations("vars")

    def _declarations(self, section: str) -> list[str]:
        declared = self._variables[section]
        lines = [line for name, (value, why) in declared.items() for line in entry(name, value, why, 2)]
        return ["vars:", *lines] if lines else []

    def search_lines(self) -> list[str]:
        """Return the block `search` of the training file."""
        if not self.searched:
            return []
        return [
            "",
            "search:   # what `netspec search` varies; edit it and search again",
            *entry("baseline", True, "the first trial has the values above and in the net file", 2),
            *entry("pruner", "hyperband", "ends most trials early, so that more trials fit into the time", 2),
            "  fields:",
            *(line for name, values in self._fields.items() for line in entry(name, values, "", 4)),
        ]
