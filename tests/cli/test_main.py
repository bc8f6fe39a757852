"""Exit statuses, messages and help of all commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from typer.main import get_command

from netspec import __version__
from netspec.cli import app, failures, main
from netspec.errors import InputError, Problem, RunError

SUBCOMMANDS = [("zoo", "list"), ("zoo", "show"), ("zoo", "copy"), ("data", "show"), ("data", "list")]
SUBCOMMANDS += [("data", "get"), ("data", "unpack")]
ALL = [(name,) for name in app.COMMANDS] + SUBCOMMANDS

MISTAKES = [
    ("init", "nosuch.csv"),
    ("train", "nosuch.yaml"),
    ("search", "nosuch.yaml"),
    ("diff", "net.yaml", "nosuch.onnx"),
    ("verify-parallel", "train.yaml", "--workers", "1"),
    ("verify-parallel", "nosuch.yaml"),
    ("verify-resume", "train.yaml", "--kills", "0"),
    ("convert", "net.yaml", "model.nonsense"),
    ("convert", "net.yaml", "model.onnx"),
    ("train", "train.yaml", "solver.learning_rat=1"),
    ("train", "train.yaml", "nonsense"),
    ("train", "net.yaml"),
    ("train", "train.yaml", "--resume"),
    ("train", "train.yaml", "--device", "abacus"),
    ("train", "train.yaml", "data.train.path=nosuch.npz"),
    ("train", "train.yaml", "--weights", "nosuch.h5"),
    ("test", "train.yaml"),
    ("test", "train.yaml", "--weights", "nosuch.h5"),
    ("test", "train.yaml", "--weights", "blobs.npz"),
    ("test", "net.yaml", "--weights", "nosuch.h5"),
    ("predict", "net.yaml", "--weights", "nosuch.h5", "--input", "blobs.npz", "--output", "out.npz"),
    ("predict", "net.yaml", "--weights", "w.h5", "--input", "blobs.npz", "--output", "nowhere/out.npz"),
    ("predict", "net.yaml", "--weights", "w.h5", "--input", "i.npz", "--output", "o.npz", "--batch-size", "0"),
    ("predict", "net.yaml", "--weights", "w.h5", "--input", "i.npz", "--output", "o.npz", "--batch-size", "many"),
    ("export", "net.yaml", "--weights", "nosuch.h5", "--output", "model.onnx"),
    ("export", "net.yaml", "--weights", "w.h5", "--output", "model.onnx", "--batch-size", "any"),
    ("export", "net.yaml", "--weights", "w.h5", "--output", "."),
    ("import", "nosuch.onnx", "--output", "new"),
    ("import", "blobs.npz", "--output", "new"),
    ("import", "net.yaml", "--output", "new", "--until", "nosuch"),
    ("import", "net.yaml", "--output", "new", "--drop-head", "9"),
    ("check",),
    ("check", "vars.width=3"),
    ("check", "nosuch.yaml"),
    ("check", "net.yaml", "vars.width=0"),
    ("check", "blobs.npz"),
    ("plan", "nosuch.yaml"),
    ("plan", "net.yaml", "--batch-size", "-1"),
    ("plan", "net.yaml", "layers.hidden.units=1.5"),
    ("draw", "nosuch.yaml"),
    ("draw", "net.yaml", "--output", "net.pdf"),
    ("gradcheck", "nosuch.yaml"),
    ("gradcheck", "net.yaml", "--tolerance", "2"),
    ("replay", "nosuch.h5"),
    ("replay", "blobs.npz"),
    ("time", "nosuch.yaml"),
    ("time", "train.yaml", "--steps", "0"),
    ("profile", "net.yaml"),
    ("profile", "train.yaml", "--output", "trace.txt"),
    ("scale", "train.yaml", "--network", "nosuch"),
    ("plot", "nosuch.yaml", "--schedule"),
    ("board", "nosuch"),
    ("board", ".", "--port", "-1"),
    ("report", "nosuch"),
    ("report", "."),
    ("report", "nosuch", "--output", "report.pdf"),
    ("runs", "nosuch"),
    ("schema", "nett"),
    ("zoo",),
    ("zoo", "lst"),
    ("zoo", "show", "lenet"),
    ("zoo", "copy", "lenet_mnist", "net.yaml"),
    ("zoo", "copy", "lenet_mnist", "."),
    ("serve", "nosuch"),
    ("serve", "train.yaml"),
    ("serve", "train.yaml", "--weights", "nosuch.h5", "--port", "0"),
    ("generate", "train.yaml", "--prompt", "x"),
    ("explain", "train.yaml", "--input", "x.png"),
    ("explain", "nosuch"),
    ("generate", "train.yaml", "--weights", "nosuch.h5", "--prompt", "x", "--tokens", "0"),
    ("data", "show", "nosuch.yaml"),
    ("data", "show", "train.yaml", "--split", "validation"),
    ("data",),
    ("data", "get", "nosuch"),
    ("data", "unpack", "nosuch", "folder"),
    ("data", "unpack", "mnist", "net.yaml"),
    ("devices", "--jsn"),
    ("devices", "cpu"),
    ("chek", "net.yaml"),
    ("--nosuch",),
]


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_a_mistake_is_reported_without_a_traceback(netspec, work, words):
    result = netspec(*words)
    assert result.status == 2
    assert result.out == ""
    assert "error: " in result.err
    assert "internal error" not in result.err


def test_every_command_has_a_mistake_above():
    assert {words[0] for words in MISTAKES} >= set(app.COMMANDS)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_has_an_example_that_names_the_command(netspec, words):
    result = netspec.ok(*words, "--help")
    assert result.out.startswith(f"Usage: netspec {' '.join(words)}")
    assert f"Example:\n    netspec {' '.join(words)}" in result.out.replace("Examples:", "Example:")


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_has_a_line_for_each_option(netspec, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = netspec(*words, "--help").out.partition("\n\n  Example")[0]
    # Names that fill the column have their help in the next line.
    text = re.sub(r"\n  (--\S+ / --\S+)\n +", r"\n  \1  ", text)
    rows = re.split(r"\n(?:Arguments|Options|Commands):\n", text, maxsplit=1)[1].splitlines()
    for row in rows:
        assert not row.startswith("   "), f"{row} continues the line above"
        assert not row.startswith("  ") or re.search(r"  [A-Z][a-z]+ .*[.\]]$", row), f"{row} is no sentence"


def test_help_shows_words_after_a_flag_and_each_kind_of_argument(netspec):
    assert "\n  --resume [auto|FILE]  Continue a run" in netspec.ok("train", "--help").out
    lines = netspec.ok("check", "--help").out.splitlines()
    assert lines[0] == "Usage: netspec check MODEL... [KEY=VALUE|~KEY]... [OPTIONS]"
    assert {"MODEL...", "[KEY=VALUE|~KEY]..."} <= {line.split()[0] for line in lines if line.strip()}


def test_help_lists_every_command(netspec):
    text = netspec("--help").out
    for title, commands in app.SECTIONS.items():
        listed = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in listed] == list(commands)
        assert all(line.endswith(".") and len(line) <= 80 for line in listed), "a whole sentence in one line"


@pytest.mark.parametrize("command", app.COMMANDS)
def test_the_line_in_the_list_is_the_first_of_the_command_help(command):
    described = get_command(app.app_of(command))
    assert described.get_short_help_str(limit=1000) == app.COMMANDS[command]


def test_no_arguments_print_the_help(netspec):
    assert netspec().out == netspec("-h").out


def test_version(netspec):
    assert netspec("--version").out == f"netspec {__version__}\n"


def test_near_names_are_suggested(netspec, work):
    assert "hint: did you mean `check`?" in netspec("chek").err
    assert "hint: did you mean `--weights`?" in netspec("test", "train.yaml", "--wieghts", "w.h5").err


def test_settings_passed_as_options_get_a_hint(netspec, work):
    assert "settings of a spec are written `train.max_epochs=3`" in netspec("train", "train.yaml", "--epochs", "3").err


def test_a_run_that_does_not_exist_is_reported_with_the_nearest_name(netspec, work):
    (work / "first").mkdir()
    assert netspec("test", "frist").err == (
        "error: no such file or folder: frist\n"
        "  expected: a run directory, a spec or a model of the zoo\n"
        "  hint: did you mean `first`?\n"
    )


def test_missing_weights_get_a_hint(netspec, work):
    assert netspec("test", "train.yaml").err == (
        "error: --weights is missing\n"
        "  expected: a weights file, or a checkpoint\n"
        "  hint: a run directory, or a folder with a spec and best.h5 or weights.h5, needs none\n"
    )


@pytest.mark.parametrize(
    "words", [word for word in MISTAKES if word[0] in ("train", "test", "check", "export")], ids=" ".join
)
def test_with_json_a_mistake_is_json(netspec, work, words):
    result = netspec(*words, "--json")
    assert result.status == 2
    data = result.json
    problems = data if words[0] == "check" else data["problems"]
    assert problems
    assert set(problems[0]) >= {"file", "line", "column", "path", "message", "expected", "got", "hint"}
    assert (data["event"] == "error") if words[0] == "train" else True


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(words: Sequence[str]) -> int:
        raise error

    monkeypatch.setattr(app, "run", run)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (InputError("wrong", hint="right"), 2, "error: wrong\n  hint: right\n"),
        (RunError([Problem("one"), Problem("two")]), 1, "error: one\nerror: two\n2 errors\n"),
        (OSError(28, "No space left on device", "out.h5"), 1, "error: no space left on device: out.h5\n"),
        (PermissionError(13, "Permission denied", "x"), 1, "error: permission denied: x\n"),
    ],
)
def test_the_error_determines_the_exit_status(netspec, monkeypatch, error, status, message):
    raising(monkeypatch, error)
    result = netspec("train")
    assert (result.status, result.err, result.out) == (status, message, "")


def test_a_defect_is_one_line_and_a_request(netspec, monkeypatch):
    raising(monkeypatch, KeyError("conv1\nkernel"))
    result = netspec("train")
    assert result.status == 1
    assert result.err.splitlines()[0].startswith("error: internal error: KeyError: ")
    assert "please report it; --debug shows the traceback" in result.err


def test_running_out_of_memory_is_not_reported_as_a_defect(netspec, monkeypatch):
    raising(monkeypatch, MemoryError())
    result = netspec("train")
    assert (result.status, result.err.splitlines()[0]) == (1, "error: out of memory")


def test_ctrl_c_has_the_shells_status(netspec, monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    assert netspec("train").status == 130


def test_ctrl_c_during_imports_prints_no_traceback():
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from netspec.cli import main\n"
        "sys.exit(main(['check', 'net.yaml']))"
    )
    process = python("-c", code)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "")


@pytest.mark.parametrize("by", ["option", "environment"])
def test_debug_shows_the_traceback(capsys, monkeypatch, by):
    raising(monkeypatch, KeyError("conv1"))
    if by == "environment":
        monkeypatch.setenv("NETSPEC_DEBUG", "1")
    assert main(["train", *(["--debug"] if by == "option" else [])]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_json_forms_of_problems():
    (problem,) = [Problem("m", expected="e")]
    assert failures.as_json("check", [problem]) == [problem.as_json()]
    assert failures.as_json("train", [problem]) == {"event": "error", "problems": [problem.as_json()]}
    assert failures.as_json("test", [problem]) == {"problems": [problem.as_json()]}


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False, **options)


def test_as_a_process(work):
    process = python("-m", "netspec", "check", "train.yaml")
    assert (process.returncode, process.stderr) == (0, "")
    wrong = python("-m", "netspec", "check", "train.yaml", "net.layers.hidden.unit=1")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("<command line>:1:1: error: ")


@pytest.mark.exhaustive
def test_a_closed_pipe_is_not_reported_as_an_error(work):
    command = f"'{sys.executable}' -m netspec schema | head -n 1"
    process = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (process.stdout, process.stderr) == ("{\n", "")


def test_a_terminal_without_unicode_gets_escapes(work):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = python("-m", "netspec", "check", "naïve.yaml", env=environment)
    assert (process.returncode, process.stderr.splitlines()[0]) == (2, "error: no such file: na\\xefve.yaml")


def modules_after(*words: str, **options: Any) -> set[str]:
    """Return the modules that a process has loaded after a command."""
    code = f"import sys; from netspec.cli import main; main({list(words)}); print(*sys.modules, file=sys.stderr)"
    return set(python("-c", code, **options).stderr.split())


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]], ids=" ".join)
def test_help_loads_nothing_that_takes_long(words: list[str]):
    loaded = modules_after(*words)
    assert "netspec.cli.app" in loaded
    assert ("netspec.cli.train" in loaded) == ("train" in words), "the list of commands imports none of them"
    assert not loaded & {"numpy", "pydantic", "yaml", "rich", "h5py", "onnx", "onnxruntime", "netspec.graph"}


def test_a_command_loads_no_other(work):
    loaded = modules_after("check", "net.yaml", cwd=work)
    assert "netspec.tools.checking.check" in loaded
    assert not loaded & {"netspec.cli.train", "netspec.training", "numpy", "rich", "h5py", "onnx", "onnxruntime"}
    behind = {
        "netspec.compile.compiler",
        "netspec.passes",
        "netspec.backends.device_registry",
        "netspec.solvers.base",
        "netspec.exchange",
    }
    assert not loaded & behind, "a net is built to be checked, and no more"
    layers = {module for module in loaded if module.startswith("netspec.layers.")}
    assert len(layers) < 20, f"the layers of a spec are imported, not all: {sorted(layers)}"


def test_a_check_of_a_training_loads_nothing_that_runs_it(work):
    loaded = modules_after("check", "train.yaml", cwd=work)
    assert "netspec.compile.compiler" in loaded
    behind = {
        "netspec.compile.planning",
        "netspec.backends.program",
        "netspec.backends.reference.kernels",
        "netspec.backends.numba.kernels",
        "netspec.backends.onednn.kernels",
        "netspec.backends.cuda.launch",
        "netspec.training.evaluation",
        "netspec.training.run",
        "netspec.training.inference",
        "netspec.exchange",
    }
    assert not loaded & behind, "its graphs are built, and no kernels are planned"
    assert not loaded & {"PIL", "h5py", "numba", "threadpoolctl"}
