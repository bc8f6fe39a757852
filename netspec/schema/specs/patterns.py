"""Patterns of names, in which `*` matches any characters: `encoder/*` matches all names that begin with `encoder/`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Pattern:
    """A name in which each `*` matches any characters."""

    text: str

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile("(.*)".join(map(re.escape, self.text.split("*"))), re.DOTALL)

    def parts(self, name: str) -> tuple[str, ...] | None:
        """Return the text that each `*` matches in a name; None if the name does not match."""
        match = self._compiled.fullmatch(name)
        return None if match is None else match.groups()

    def __contains__(self, name: str) -> bool:
        return self.parts(name) is not None

    def renamed(self, name: str, target: str) -> str | None:
        """Replace each `*` of `target` by what the pattern's `*` matches in `name`; None if `name` does not match."""
        parts = self.parts(name)
        if parts is None:
            return None
        first, *rest = target.split("*")
        return first + "".join(part + text for part, text in zip(parts, rest, strict=False))


def matches(texts: Iterable[str], name: str) -> bool:
    """Whether a name matches one of the patterns."""
    return any(name in Pattern(text) for text in texts)
