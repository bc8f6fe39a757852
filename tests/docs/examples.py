"""Examples of the documentation: specs in YAML, commands, and the output of commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.schema.yaml.reader import parse_yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md")), *sorted(ROOT.glob("model_zoo/**/*.md"))]

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\S+\.yaml)\n")
TRAIN_KEYS = frozenset({"net", "data", "solver", "train", "init_from", "parallel", "callbacks", "stages"})


@dataclass(frozen=True)
class Example:
    """A block of YAML on a page."""

    page: Path
    text: str
    tree: Any

    @property
    def id(self) -> str:
        """The location of the example, as a test id."""
        line = self.page.read_text(encoding="utf-8").partition(self.text)[0].count("\n") + 1
        return f"{self.page.relative_to(ROOT)}:{line}"

    @property
    def complete(self) -> bool:
        """Whether the example is a complete file."""
        return "netspec" in self.tree

    @property
    def file(self) -> str:
        """Return the name of the file: from a comment on its first line, or from its contents."""
        named = _NAME.match(self.text)
        return named[1] if named else "train.yaml" if TRAIN_KEYS & set(self.tree) else "net.yaml"


def blocks(page: Path, language: str) -> Iterator[str]:
    """Yield the fenced blocks of a page in one language; "" for blocks without a language."""
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["language"] == language:
            yield block["body"]


def here_documents(page: Path) -> dict[str, str]:
    """Return the files that a page's shell commands write with `cat > NAME <<'END'`."""
    return dict(_HERE_DOCUMENT.findall(page.read_text(encoding="utf-8")))


def examples(page: Path) -> list[Example]:
    """Return the YAML examples of a page."""
    return [Example(page, text, parse_yaml(text, page.name)) for text in blocks(page, "yaml")]


def commands(page: Path) -> list[list[str]]:
    """Return the netspec commands on a page as words, without `$ ` and `netspec`."""
    indented = re.findall(r"^    (netspec .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    lines = [line for block in blocks(page, "") for line in block.splitlines()] + indented
    lines_of_words = [
        shlex.split(line.removeprefix("$ "), comments=True) for line in lines if re.match(r"(\$ )?netspec ", line)
    ]
    return [words[1:] for words in lines_of_words]
