"""Errors in Python: as text, with the location and what is expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netspec import errors
from netspec.distributed.monitoring.failure_reports import resume_hint
from netspec.errors import (
    MAX_QUOTED_LINE,
    InputError,
    Location,
    Problem,
    RunError,
    command,
    format_digits,
    install_command,
    kind_of_file,
    listing,
    near_path,
    nearest,
    program,
)

WHERE = Location("net.yaml", 3, 5, "  - {units: 0}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1001780.4, "1001780"),
        (999999.7, "1000000"),
        (-266350.0, "-266350"),
        (85.123456, "85.1235"),
        (2e-9, "2e-09"),
        (3e20, "3e+20"),
    ],
)
def test_numbers_are_written_with_all_digits_before_the_point(value: float, text: str) -> None:
    assert format_digits(value, 6) == text


def test_an_error_as_text_contains_all_that_the_command_line_prints():
    error = InputError([Problem("too small", WHERE, expected="1 or more", got="0", hint="give one"), Problem("more")])
    assert str(error) == error.render()
    for part in ("net.yaml:3:5: error: too small", "- {units: 0}", "expected: 1 or more", "got: 0", "hint: give one"):
        assert part in str(error)
    assert str(error).endswith("error: more\n2 errors")


def test_a_summary_is_one_line_of_messages():
    assert InputError([Problem("one", WHERE, hint="h"), Problem("two")]).summary == "one; two"
    assert RunError("disk full", got="0 bytes").summary == "disk full"


@pytest.mark.parametrize(("before", "after"), [(0, 500), (500, 0), (300, 300), (MAX_QUOTED_LINE - 3, 0)])
def test_a_long_line_is_cut_with_an_ellipsis_and_the_caret_keeps_its_position(before: int, after: int):
    text = "a" * before + "!?!" + "b" * after
    quoted, caret = Problem("m", Location("f", 1, before + 1, text)).render().splitlines()[1:]
    assert quoted[caret.index("^") :].startswith("!?!")
    assert len(quoted) <= MAX_QUOTED_LINE + len("  1 | ") + 2
    excerpt = quoted.partition("| ")[2]
    cut = len(text) > MAX_QUOTED_LINE
    assert excerpt.startswith("…") == (cut and before > MAX_QUOTED_LINE // 2)
    assert excerpt.endswith("…") == (cut and after > 0)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "an empty file"),
        (b"# yaml-language-server", "a text file"),
        ("Größe".encode()[:-3], "a text file"),
        ("Grö".encode()[:-1], "a text file"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"\x93NUMPY", "a file that begins with the bytes 93 4e 55 4d 50 59"),
        (b"\x00" * 64, "a file that begins with the bytes 00 00 00 00 00 00 00 00"),
    ],
)
def test_file_format_is_detected_from_the_first_bytes(head: bytes, words: str):
    assert kind_of_file(head) == words


def test_a_long_list_of_names_begins_with_those_that_the_hint_speaks_of():
    names = [f"Layer{number:02}" for number in range(40)]
    assert listing(names, 2, "use Layer33 or Layer07") == "Layer07, Layer33 and 38 more"
    assert listing(["b", "a"], 2, "b") == "a, b"


def test_a_hint_precedes_a_list_that_is_cut():
    names = [f"Layer{number:02}" for number in range(40)]
    long = Problem("no layer `Layer3`", expected=f"one of {listing(names)}", hint="did you mean `Layer33`?")
    assert long.render().splitlines()[1] == "  hint: did you mean `Layer33`?"
    assert long.render().splitlines()[2].endswith("Layer09 and 30 more")
    short = Problem("no layer `Layer3`", expected=f"one of {listing(names[:10])}", hint="did you mean `Layer03`?")
    assert short.render().splitlines()[-1] == "  hint: did you mean `Layer03`?"


def test_names_of_other_tools_suggest_their_equivalents():
    assert nearest("fp32", ["float32", "tf32", "float16"]) == "float32"
    assert nearest("gpu", ["auto", "cpu", "cuda"]) == "cuda"
    types = ["float32", "int8", "int16", "int32", "int64", "uint8"]
    assert [nearest(name, types) for name in ("int", "long", "float")] == ["int32", "int64", "float32"]


def test_a_common_suffix_does_not_make_file_names_similar(tmp_path: Path) -> None:
    (tmp_path / "m_opt.yaml").touch()
    assert near_path(tmp_path / "nope.yaml") is None
    assert near_path(tmp_path / "m_op.yaml") == f"did you mean `{tmp_path / 'm_opt.yaml'}`?"


def test_swapped_letters_mean_the_name_that_has_them():
    assert nearest("Adma", ["Adamax", "Adagrad", "Adam"]) == "Adam"
    assert nearest("adamx", ["Adam", "Adamax"]) == "Adamax"
    assert nearest("momentum", ["beta_1", "epsilon"]) is None


def test_commands_to_copy_are_called_as_this_one_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "netspec"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(script)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == [str(script)]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == ["netspec"]
    for other in ("/x/train.py", "/x/pytest/__main__.py"):
        monkeypatch.setattr("sys.argv", [other])
        assert program() == ["netspec"]
    monkeypatch.setattr("sys.argv", ["/x/netspec/__main__.py"])
    assert program() == ["python", "-m", "netspec"]
    assert command("train", Path("a b.yaml")) == "python -m netspec train 'a b.yaml'"
    assert resume_hint("runs/a", ["--workers", "2"]) == (
        "to continue: python -m netspec train runs/a/spec.yaml --resume --workers 2"
    )


def test_extras_are_installed_from_where_netspec_is_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = Path(errors.__file__).parents[1]
    monkeypatch.chdir(root)
    assert install_command("serve", "parquet") == "pip install -e '.[serve,parquet]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("serve") == f"pip install -e '{root}[serve]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lib" / "netspec" / "errors.py"))
    wheel = tmp_path / "my dist" / "netspec-1.whl"
    origin = {"archive_info": {}, "url": wheel.as_uri()}
    monkeypatch.setattr("importlib.metadata.PathDistribution.read_text", lambda *_: json.dumps(origin))
    needed = ["numpy>=2", "starlette<2,>=1.0; extra == 'serve'", 'mpich>=5; sys_platform == "linux" and extra == "mpi"']
    monkeypatch.setattr("importlib.metadata.requires", lambda _: needed)
    assert install_command("serve") == "pip install 'starlette<2,>=1.0'", "PyPI has a different netspec"
    assert install_command("mpi") == "pip install 'mpich>=5'"
    wheel.parent.mkdir()
    wheel.touch()
    assert install_command("serve") == f"pip install '{wheel}[serve]'"
