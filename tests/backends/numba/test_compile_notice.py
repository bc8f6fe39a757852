"""The announcement that kernels are compiled."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator

import pytest

from netspec.backends import compile_notice
from netspec.backends.numba.native import of_source
from netspec.cli.output import note_compilation


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    yield
    compile_notice.announce_compilation(lambda: None)


def compile_new_kernel() -> None:
    """Compile a kernel that no cache on disk has."""
    of_source(f"def body(first, last):\n    '''{uuid.uuid4()}'''\n    return None", ())


def test_compilation_is_announced_once_if_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    compile_notice.announce_compilation(lambda: notices.append("compiling"))
    compile_new_kernel()
    assert notices == []  # not a second yet
    monkeypatch.setattr(compile_notice, "PATIENCE", 0.0)
    compile_new_kernel()
    compile_new_kernel()
    assert notices == ["compiling"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_it(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(compile_notice, "PATIENCE", -1.0)
    note_compilation()
    compile_new_kernel()
    assert screen.getvalue() == "compiling kernels (first run only)…\n" * is_terminal
