"""Pieces of HTML pages that contain everything they need, and may load nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from netspec.schema.plain_json import json_text

LIBRARY = ("uPlot.iife.min.js", "charts.js")
"""Scripts of all pages with charts."""
STYLES = ("uPlot.min.css", "page.css")


@cache
def static(name: str) -> str:
    """Return the content of a script or style."""
    return (files("netspec.tools.report") / "static" / name).read_text(encoding="utf-8")


def document(title: str, body: str, data: Any, scripts: Sequence[str], *, connects: bool = False) -> tuple[str, str]:
    """Return a page, and its Content-Security-Policy: its own scripts, styles and pictures, and nothing else.

    `data` is what scripts read from the element `data`. With `connects`, scripts may also send requests to the server
    that the page comes from.
    """
    style = "\n".join(map(static, STYLES))
    code = [static(name) for name in (*LIBRARY, *scripts)]
    sources = " ".join(map(_hash, code))
    policy = (
        f"default-src 'none'; script-src {sources}; style-src {_hash(style)}; img-src data:; "
        f"base-uri 'none'; form-action 'none'{'; connect-src ' + chr(39) + 'self' + chr(39) if connects else ''}"
    )
    # In a script element, HTML ends at `</script`, whatever the type; `<` occurs only inside the strings of JSON.
    content = json_text(data).replace("<", "\\u003c")
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        f"<body>\n{body}",
        f'<script type="application/json" id="data">{content}</script>',
        *(f"<script>{script}</script>" for script in code),
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts), policy


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def cell(value: Any) -> str:
    """Return a value of a table as text: numbers with five digits, integers with their thousands apart."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; cells with numbers are aligned right."""
    rows = [list(row) for row in rows]
    numeric = [
        bool(rows) and all(row[at] is None or isinstance(row[at], (int, float)) for row in rows)
        for at in range(len(header))
    ]
    head = "".join(
        f'<th scope="col"{" class=number" if right else ""}>{escape(name)}</th>'
        for name, right in zip(header, numeric, strict=True)
    )
    lines = [
        "<tr>"
        + "".join(
            f"<td{' class=number' if right else ''}>{escape(cell(value))}</td>"
            for value, right in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in rows
    ]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def facts(values: Mapping[str, Any]) -> str:
    """Return a list of names and values; those that are None or empty are left out."""
    items = (
        f"<dt>{escape(name)}</dt><dd>{escape(cell(value))}</dd>"
        for name, value in values.items()
        if value not in (None, "")
    )
    return f'<dl class="facts">{"".join(items)}</dl>'


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def png_address(content: bytes) -> str:
    """Return a PNG file as an address that contains it."""
    return f"data:image/png;base64,{b64encode(content).decode()}"
