"""Docs, docstrings, messages and help avoid the phrases that made netspec's prose hard to read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = {
    r"\b(?:is|are|was|be|gets?) told\b|\btells? of\b": "reports, prints, raises",
    r"\bso many\b": "N, that many",
    r"\bbeside\b": "next to, in addition to, as well as",
    r"\banew\b": "again, from scratch",
    r"\bto the (?:last )?bit\b|\bbit (?:by|for) bit\b": "bit-identical",
    r"(?<!there )\b(?:is|are|was|were) (?:no|(?-i:none))\b(?! longer| more)": "is not, does not have, is absent",
    r"\bknows? (?:not|no)\b|\bha(?:s|ve) not\b(?! \w+ed| yet| been| run| sent)": "does not",
    r"\b(?:lie|lies|lay) (?:as|in memory|in|beside|behind|behind one another|otherwise)\b": "is stored",
    r"\bmade[- ]up\b": "synthetic",
    r"\bthe house\b|\bthe rooms?\b|\btether\b|\bcrew\b": "the package, the module, workers, control socket",
    r"\bof the whole\b|\bby heart\b": "the full tensor, memorizes",
    r"\bone another'?s?\b": "each other",
    r"\bhand(?:s|ed|ing)?(?: \w+)? round\b": "distribute, broadcast",
    r"\b(?:comes?|came) to be\b": "is computed, is created",
    r"\bwish(?:es)?\b": "request, vote",
    r"\bhere it is `": "use",
    r"\bof before\b|\bas ever\b": "the previous, as usual",
    r"\b(?:is|are|was|were) had\b": "is stored, is split",
}
"""Phrases and what to write instead."""
BANNED_ON_PAGES = BANNED | {
    r"\b(?:is|are) said\b": "is set, is declared, the message says",
    r"\bgo(?:es)? on\b|\bgoing on\b": "continue, resume",
    r"\bsum(?:s|med)? up\b": "sum, reduce",
    r"\bbut for\b": "except for",
    r"\bon (?:its|their) way\b": "in flight, being sent",
    r"\bthe places\b|\bplaces of\b": "positions, elements, indices",
    r"\bneeds? not\b|\bneed be\b": "does not have to",
    r"\bin the mean\b": "on average",
    r"\bput together again\b": "restored",
    r"\bwhole numbers?\b|\btruth values?\b": "integer, boolean",
    r"\bof one's own\b|\bof our own\b": "custom, separate, netspec's own",
    r"\ba training\b(?!$| (?:data|file|graph|job|log|loop|loss|program|run|set|split|step)\b)": "a run, a training run",
    r"\btrainings\b": "runs, training runs",
    r"\banother one\b|\b(?:at|in|with) another\b": "a different, a second",
    r"\bof another (?:class|framework|program|shape|tool)\b": "of a different",
    r"\b(?:is|are|equals?) (?:that|those) of\b": "repeat the noun, is the same as with",
    r"(?<!netspec )\bdata sets?\b": "dataset",
    r"\bwhatever the\b|\bin vain\b|\bas it were\b": "regardless of, for any",
}
"""The same for pages that are written by hand."""
DOCS = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/adr/*.md"),
    *ROOT.glob("docs/reference/**/*.md"), *ROOT.glob("model_zoo/**/*.md"), *ROOT.glob("benchmarks/*.md"),
]  # fmt: skip
PAGES = [page for page in DOCS if "reference" not in page.parts]
SOURCES = sorted(ROOT.glob("netspec/**/*.py"))


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, messages and help texts of a module: all strings of several words."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        before, sign, comment = line.partition("# ")
        if sign and not before.count('"') % 2:
            yield number, comment


def banned(path: Path, phrases: Mapping[str, str] = BANNED) -> Iterator[str]:
    """Yield the banned phrases of a file, with their locations."""
    if path.suffix == ".py":
        texts = [*_strings(path), *_comments(path)]
    else:
        texts = list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    together = "\n".join(text for _, text in texts)  # one search of a file for each phrase: most files have none
    found = {pattern: phrases[pattern] for pattern in phrases if re.search(pattern, together, re.IGNORECASE)}
    for line, text in texts:
        for pattern, instead in found.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                yield f"{path.relative_to(ROOT)}:{line}: `{match[0]}`: write: {instead}"


def test_docs_avoid_banned_phrases() -> None:
    assert not [phrase for path in DOCS for phrase in banned(path)]


def test_pages_avoid_banned_phrases() -> None:
    assert not [phrase for path in PAGES for phrase in banned(path, BANNED_ON_PAGES)]


def test_modules_avoid_banned_phrases() -> None:
    assert not [phrase for path in SOURCES for phrase in banned(path)]


def test_banned_phrases_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "module.py"
    text = '"""What is wrong is told."""\nX = "it is no layer"  # anew\nY = "no_place"\n'
    module.write_text(text, encoding="utf-8")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert [phrase.split("`")[1] for phrase in banned(module)] == ["is told", "is no", "anew"]


def test_phrases_of_pages_are_found_with_what_may_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    text = "A training step of a training run resumes a training on another one.\n`netspec data sets`: data sets.\n"
    page.write_text(text, encoding="utf-8")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    phrases = [phrase.split("`")[1] for phrase in banned(page, BANNED_ON_PAGES)]
    assert phrases == ["a training", "another one", "data sets"]
