"""The announcements that kernels are compiled, and that a GPU is checked."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator

import pytest

from netspec.backends.notices import wait_notices
from netspec.backends.numba.native import of_source
from netspec.cli import main


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    yield
    wait_notices.set_listener(None)


def compile_new_kernel() -> None:
    """Compile a kernel that no cache on disk has."""
    of_source(f"def body(first, last):\n    '''{uuid.uuid4()}'''\n    return None", ())


def test_compilation_is_announced_once_if_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    wait_notices.set_listener(notices.append)
    compile_new_kernel()
    assert notices == []  # it has taken less than a second so far
    monkeypatch.setattr("netspec.backends.notices.PATIENCE", 0.0)
    compile_new_kernel()
    compile_new_kernel()
    assert notices == ["compiling kernels (first run only)…"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_it(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("netspec.backends.notices.PATIENCE", -1.0)
    assert main(["--version"]) == 0
    compile_new_kernel()
    wait_notices.announce_check("cuda:0", 20)
    shown = "compiling kernels (first run only)…\nchecking cuda:0 (first use only, at most 20 s)…\n"
    assert screen.getvalue() == shown * is_terminal
