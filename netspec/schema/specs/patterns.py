"""Patterns of names: `encoder/*` stands for all names that begin so; `*` for any characters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Pattern:
    """A name in which each `*` stands for any characters."""

    text: str

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile("(.*)".join(map(re.escape, self.text.split("*"))), re.DOTALL)

    def parts(self, name: str) -> tuple[str, ...] | None:
        """What the stars stand for in a name; None for a name that the pattern is not of."""
        found = self._compiled.fullmatch(name)
        return None if found is None else found.groups()

    def __contains__(self, name: str) -> bool:
        return self.parts(name) is not None

    def renamed(self, name: str, target: str) -> str | None:
        """`target` with each `*` replaced by what those of the pattern stand for, in order; None as for `parts`."""
        parts = self.parts(name)
        if parts is None:
            return None
        first, *rest = target.split("*")
        return first + "".join(part + text for part, text in zip(parts, rest, strict=False))


def matches(texts: Iterable[str], name: str) -> bool:
    """Whether a name fits one of the patterns."""
    return any(name in Pattern(text) for text in texts)
