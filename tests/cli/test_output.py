"""Numbers, tables, JSON and command lines as they are printed."""

from __future__ import annotations

from io import StringIO
from json import loads

import pytest

from netspec.cli import output, progress
from netspec.cli.options import files_and_overrides, writable
from netspec.errors import InputError


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (1234, "1.23 kB"),
        (12_345, "12.3 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (1_724_320, "1.72 MB"),
        (5 * 10**18, "5000 PB"),
    ],
)
def test_sizes(number, text):
    assert output.size(number) == text


def test_counts():
    assert output.count(1234567) == "1,234,567"


def test_a_table_in_a_file_has_no_colors_no_markup_and_no_blank_ends(capsys):
    output.table(["a", "number"], [["[bold]x[/bold]", "1"], ["y" * 200, "23"]], right=(1,))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "a" + " " * 201 + "number"
    assert first == "[bold]x[/bold]" + " " * 193 + "1"
    assert second == "y" * 200 + " " * 6 + "23"


def test_a_table_without_a_head(capsys):
    output.table(["", ""], [["a", "1"]])
    assert capsys.readouterr().out == "a  1\n"


def test_json_has_no_nan(capsys):
    output.print_json({"a": [float("nan"), 1.5], "b": (float("inf"), "text")})
    assert loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": [None, "text"]}
    output.print_json_line({"a": float("-inf")})
    assert capsys.readouterr().out == '{"a": null}\n'


def test_files_and_overrides(current_folder):
    (current_folder / "a=b").touch()
    assert files_and_overrides(["x.yaml", "k=v", "~k", "a=b"]) == (["x.yaml", "a=b"], ["k=v", "~k"])


def test_paths_that_can_be_written(tmp_path):
    assert writable(tmp_path / "a", "--output") == tmp_path / "a"
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        writable(tmp_path / "folder", "--output")
    with pytest.raises(InputError, match="foldr does not exist") as error:
        writable(tmp_path / "foldr" / "a", "--output")
    assert error.value.problems[0].hint == "did you mean `folder`?"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_on_a_terminal_fits_it(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    output.table(["name", "number"], [["long " * 30, "1"], ["[1, 2]", "23"]], right=(1,))
    lines = screen.getvalue().splitlines()
    assert len(lines) > 6, "the long cell is folded"
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 60 for line in lines)
    assert "[1, 2]" in screen.getvalue()
    assert "\x1b[3" not in screen.getvalue(), "no colors with NO_COLOR"


def test_progress_is_shown_as_the_output_can_take_it(monkeypatch, capsys):
    with progress.display(as_json=True) as listener:
        assert listener is progress.json_lines
    with progress.display(as_json=False) as listener:
        assert isinstance(listener, progress.EventLines)
    monkeypatch.setattr("sys.stdout", Terminal())
    with progress.display(as_json=False) as listener:
        assert isinstance(listener, progress.Bar)
