"""Every error a user can see: what, where (file:line:col), expected, got, hint.

A `Problem` is one finding; a `NetspecError` carries one or many of them and the exit status of the command
that meets it. Nothing here imports anything of netspec.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_PICKLE = re.compile(
    rb"\x80[\x02-\x05]|[\x5d\x7d\x29]q\x00|\((?:[dl]p[0-9]+|I-?[0-9]+|F[-+.e0-9]+|L-?[0-9]+L|S['\"].*)\r?\n"
    rb"|c[A-Za-z_][\w.]*\r?\n\w+\r?\n[pq(]"
)
_CUT_LIST = re.compile(r" and [\d,]+ more\b")
_IRREGULAR = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}

MAX_QUOTED_LINE = 160
MAX_SHOWN = 50


@dataclass(frozen=True)
class Call:
    """A call of a block or a turn of a repetition that led to a location."""

    description: str
    """The call as described in a message: "in `res1`, a call of the block `residual`"."""
    location: Location

    def __str__(self) -> str:
        return f"{self.description}, at {self.location}"


@dataclass(frozen=True)
class Location:
    """A position in a file or in a command-line override. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    text: str = ""
    """The line itself, quoted under the message."""
    calls: tuple[Call, ...] = field(default=(), compare=False, repr=False)
    """The calls and repetitions that led to the location, innermost first; they do not affect equality."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SettingHint(str):
    """A hint to change a setting of the training, in three forms, since not everyone can edit the training file.

    The text itself is for those who train. For those who predict files, `as_override` names `settings` of the source as
    overrides, for a `purpose` such as "to resize the images"; a tuple has alternative values. `data` is the hint for
    clients of a service, who can only change the data; without it, only the training file can be changed.
    """

    settings: Mapping[str, Any]
    purpose: str
    data: str | None

    def __new__(
        cls, text: str, *, settings: Mapping[str, Any] | None = None, purpose: str = "", data: str | None = None
    ) -> SettingHint:
        """Return the hint."""
        hint = super().__new__(cls, text)
        hint.settings, hint.purpose, hint.data = settings or {}, purpose, data
        return hint

    def as_override(self, split: str, fields: Collection[str]) -> str:
        """Return the hint for files to predict, which are read like a split such as `data.test`.

        `fields` are the fields of the split's source; if it lacks those of the settings, only the files can be changed.
        """
        if not self.settings or any(name.partition(".")[0] not in fields for name in self.settings):
            return self.data or str(self)
        overrides = [
            f"`{shlex.quote(f'{split}.{name}={_override_value(value)}')}`"
            for name, values in self.settings.items()
            for value in (values if isinstance(values, tuple) else (values,))
        ]
        return f"add {' or '.join(overrides)} {self.purpose}"


def _override_value(value: Any) -> str:
    """Return a value as an override writes it in YAML: a text is quoted if it would be read as something else."""
    if isinstance(value, str) and value.strip() and value not in "|&*!%@`":
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Problem:
    """One problem, with what its reader needs to fix it."""

    message: str
    location: Location | None = None
    path: str = ""
    """Dotted path of the value in its document, e.g. `layers.conv1.filters`."""
    expected: str | None = None
    got: str | None = None
    hint: str | None = None
    notes: tuple[str, ...] = field(default=())
    """Further lines, e.g. the chain of layers that led to a shape."""

    def at(self, location: Location | None, path: str = "") -> Problem:
        """Return the problem with the location and the path filled in if it has none."""
        return replace(self, location=self.location or location, path=self.path or path)

    @property
    def brief(self) -> str:
        """The message and the actual value, in one line."""
        return f"{self.message}: {self.got}" if self.got else self.message

    def render(self, severity: str = "error") -> str:
        """The problem as text: the location, the message, the quoted line with a caret, and what would be right."""
        headline = f"{severity}: {self.message}"
        lines = [f"{self.location}: {headline}" if self.location else headline]
        if self.location and self.location.text:
            lines += _quote(self.location)
        elif self.path:
            lines.append(f"  at: {self.path}")
        lines += [f"  {name}: {text}" for name, text in self._facts() if text]
        lines += [f"  {note}" for note in self._notes()]
        return "\n".join(lines)

    def _facts(self) -> list[tuple[str, str | None]]:
        facts = [("expected", self.expected), ("got", self.got), ("hint", self.hint)]
        return facts[::-1] if _CUT_LIST.search(self.expected or "") else facts

    def _notes(self) -> list[str]:
        """The notes, and the calls that led to the location."""
        return [*self.notes, *map(str, self.location.calls if self.location else ())]

    def as_json(self) -> dict[str, Any]:
        """The problem as the object that `netspec check --json` prints."""
        where = self.location
        return {
            "file": where.file if where else None,
            "line": where.line if where else None,
            "column": where.column if where else None,
            "path": self.path,
            "message": self.message,
            "expected": self.expected,
            "got": self.got,
            "hint": self.hint,
            "notes": self._notes(),
        }


def _quote(where: Location) -> list[str]:
    text, column = where.text.replace("\t", " "), where.column
    if len(text) > MAX_QUOTED_LINE:
        start = max(0, min(column - MAX_QUOTED_LINE // 2, len(text) - MAX_QUOTED_LINE))
        end = start + MAX_QUOTED_LINE
        text = ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
        column -= start - (1 if start else 0)
    gutter = f"  {where.line} | "
    return [gutter + text, " " * (len(gutter) - 2) + "| " + " " * (column - 1) + "^"]


def by_location(problem: Problem) -> tuple[str, int, int]:
    """Return the sort key of a problem: file, line, column."""
    location = problem.location
    return (location.file, location.line, location.column) if location else ("", 0, 0)


class NetspecError(Exception):
    """An error meant for the user; never shown as a traceback by the command line. Exit status 1: it failed running.

    `render()` is the text for the command line. `str(error)` is the same text for Python callers, with arguments in
    place of options: see `in_python`. `summary` has the messages alone.
    """

    exit_status = 1

    def __init__(self, problems: str | Problem | Iterable[Problem], **facts: Any) -> None:
        if isinstance(problems, str):
            problems = Problem(problems, **facts)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.summary)

    def __str__(self) -> str:
        return in_python(self.render())

    @property
    def summary(self) -> str:
        """The messages alone, in one line, to be quoted in another message."""
        return "; ".join(problem.message for problem in self.problems)

    def render(self) -> str:
        """All problems as text, at most `MAX_SHOWN` of them, with a count at the end."""
        rendered = [problem.render() for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            rendered.append(f"… and {len(self.problems) - MAX_SHOWN} more")
        if len(self.problems) > 1:
            rendered.append(f"{len(self.problems)} errors")
        return "\n".join(rendered)


class InputError(NetspecError):
    """An input of the user is invalid: a spec, a data file, a weights file, an option. Exit status 2."""

    exit_status = 2


class SpecError(InputError):
    """A spec is invalid; each problem has a location in a file or on the command line."""


class RunError(NetspecError):
    """A run with valid input failed: a non-finite loss, a full disk. Exit status 1."""


def as_netspec_error(error: BaseException) -> NetspecError:
    """Convert any exception to an error for the user."""
    if isinstance(error, NetspecError):
        return error
    if isinstance(error, MemoryError):
        return RunError(
            "out of memory",
            hint="`netspec plan` prints the memory that a batch needs; a smaller `batch_size` needs less",
        )
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return RunError(f"{error.strerror[:1].lower()}{error.strerror[1:]}{where}")
    message = " ".join(str(error).split())
    return RunError(
        f"internal error: {type(error).__name__}" + (f": {message}" if message else ""),
        hint="this is a bug in netspec: please report it; --debug shows the traceback",
    )


_FUNCTIONS = {
    "train": "train", "test": "test", "predict": "predict", "export": "export", "import": "import_model",
    "convert": "convert", "check": "check", "plan": "plan", "time": "time", "diff": "diff", "scale": "scale",
    "replay": "replay", "plot": "plot", "verify-parallel": "verify_parallel",
    "verify-resume": "verify_resume",
}  # fmt: skip
"""The function of the Python interface for each command."""
_ARGUMENTS = {
    "--shape": "shapes", "--value": "values", "--map": "names", "--stage": "stages", "--net": "net",
    "--weights": "weights", "--phase": "phase", "--level": "level", "--until": "until", "--drop-head": "drop_head",
    "--fold-batch-norm": "fold_batch_norm", "--run-dir": "run_dir", "--resume": "resume", "--device": "device",
    "--batch-size": "batch_size", "--steps": "steps", "--workers": "workers", "--export": "export", "--form": "form",
    "--workers-per-host": "workers_per_host", "--opset": "opset", "--inputs": "inputs", "--tolerance": "tolerance",
    "--autotune": "autotune", "--inference": "inference", "--network": "network", "--within": "within",
    "--strategy": "strategies", "--algorithm": "algorithm", "--step-time": "step_time", "--jitter": "jitter",
    "--compute-scale": "compute_scale", "--servers": "servers", "--every": "every", "--density": "density",
    "--no-data": "data=False", "--micro-batches": "micro_batches", "--schedule": "schedule", "--split": "split",
    "--kills": "kills", "--task": "task", "--target": "target", "--trunk": "trunk", "--force": "force",
    "--trials": "trials", "--minutes": "minutes", "--jobs": "jobs", "--x": "x", "--largest-batch": "largest_batch",
    "--port": "port", "--with-preprocessing": "with_preprocessing",
    "--without-preprocessing": "with_preprocessing=False",
}  # fmt: skip
"""The argument of the Python interface for each option."""
_OPTION = "|".join(sorted(_ARGUMENTS, key=len, reverse=True))
_COMMANDS = "|".join(_FUNCTIONS)
_WORDS = r"(?:--)?[^\s`;,)…]+(?: [^\s`;,)…]+)*"
_CALL = re.compile(rf"(?:[^\s`]*netspec|python -m netspec) ({_COMMANDS}) ({_WORDS})(?=[`;,)]|\s*$)")
_QUOTED = re.compile(rf"`({_OPTION})(?: ((?!--)[^\s`]+))?`")
_BARE = re.compile(rf"(?<![\w-])({_OPTION})(?![\w-])")


def in_python(text: str) -> str:
    """A message with options and commands as arguments and calls: `--batch-size 8` becomes `batch_size=8`."""
    text = _CALL.sub(_as_call, text)
    text = _QUOTED.sub(lambda match: f"`{_as_argument(match[1], match[2])}`", text)
    return _BARE.sub(lambda match: f"`{_ARGUMENTS[match[1]]}`", text)


def _as_call(match: re.Match[str]) -> str:
    """A command of netspec as a call; commands with other options than those of the Python interface stay."""
    words, arguments = shlex.split(match[2]), list[str]()
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            arguments.append(f'"{word}"')
        elif word in _ARGUMENTS:
            arguments.append(_as_argument(word, words.pop(0) if words and not words[0].startswith("--") else "True"))
        elif word == "--output":
            arguments.append(f'"{words.pop(0)}"' if words else "…")
        else:
            return match[0]
    return f"netspec.{_FUNCTIONS[match[1]]}({', '.join(arguments)})"


def _as_argument(option: str, value: str | None) -> str:
    name = _ARGUMENTS[option]
    if value is None:
        return name
    if name == "batch_size" and value.endswith("/worker"):
        return f"batch_size={value.removesuffix('/worker')}, per_worker=True"
    if name in ("shapes", "values", "names") and "=" in value:
        key, _, numbers = value.rpartition("=")
        return f'{name}={{"{key}": {numbers if name == "names" else f"({numbers},)"}}}'
    return f"{name}={value}" if value.isdigit() or value == "True" else f'{name}="{value}"'


def folded(name: str) -> str:
    """Normalize a name: without case, underscores and hyphens."""
    return name.replace("_", "").replace("-", "").lower()


ELSEWHERE = {
    "fp64": "float64", "double": "float64", "fp32": "float32", "single": "float32", "fp16": "float16",
    "half": "float16", "bf16": "bfloat16", "float": "float32", "int": "int32", "long": "int64",
    "gpu": "cuda", "nvidia": "cuda",
    "ontrainbegin": "ontrainstart", "onfitstart": "ontrainstart", "onfitend": "ontrainend",
    "onbatchend": "onstepend", "ontrainbatchend": "onstepend", "onvalidationend": "onevaluationend",
    "ontestend": "onevaluationend",
}  # fmt: skip
"""Names in other tools → names in netspec."""


MIN_START = 4
"""Number of letters from which the start of a name stands for the only name that starts so."""


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the known name that is equivalent or most similar to `name`, ignoring case and underscores, or None."""
    by_fold: dict[str, str] = {}
    for candidate in candidates:
        by_fold.setdefault(folded(candidate), candidate)
    translated = [spelling for spelling in by_fold if spelling == ELSEWHERE.get(folded(name))]
    swapped = [spelling for spelling in by_fold if sorted(spelling) == sorted(folded(name))]  # Adma: Adam, not Adamax
    longer = [spelling for spelling in by_fold if len(name) >= MIN_START and spelling.startswith(folded(name))]
    begun = longer if len(longer) == 1 else []  # lenet: lenet_mnist, not alexnet
    matches = translated or swapped or begun or get_close_matches(folded(name), by_fold, n=1, cutoff=0.6)
    return by_fold[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint that names the nearest known name, or None."""
    suggestion = nearest(name, candidates)
    return f"did you mean `{suggestion}`?" if suggestion else None


def listing(names: Sequence[str], most: int = 10, hint: str | None = None) -> str:
    """Format names for a message, sorted and cut after `most`; if cut, names in the `hint` come first.

    A problem whose expected names are cut shows its hint before them.
    """
    hint = (hint or "") if len(names) > most else ""
    words = set(re.findall(r"\w+", hint))
    ordered = sorted(names, key=lambda name: (name not in words and f"`{name}`" not in hint, name))
    return ", ".join(ordered[:most]) + and_more(len(ordered) - most)


def and_more(count: int) -> str:
    """The end of a list of which `count` items are not shown: " and 57 more", or nothing."""
    return f" and {count:,} more" if count > 0 else ""


MAX_DIGITS = 12
"""Number of digits before the point from which a number is written with an exponent."""


def counted(number: int, noun: str) -> str:
    """A number of things: `1 sample`, `1,234 samples`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_digits(value: float, count: int) -> str:
    """A number with `count` significant digits, and all digits before the point: `1001780`, not `1.00178e+06`."""
    rounded = f"{value:.{count}g}"
    return f"{value:.0f}" if 10**count <= abs(float(rounded)) < 10**MAX_DIGITS else rounded


def command(*words: object) -> str:
    """A command of netspec to copy, called as this one was: words with spaces and such are quoted."""
    return shlex.join([*program(), *map(str, words)])


def words_of_options(options: Mapping[str, object]) -> list[str]:
    """Return the words of the options that have a value: their names, each followed by its value."""
    return [str(word) for option, value in options.items() if value is not None for word in (option, value)]


def program() -> list[str]:
    """Return the name of the command: `netspec`, `python -m netspec` or the path of a script."""
    executable = sys.argv[0]
    if Path(executable).parts[-2:] == ("netspec", "__main__.py"):
        return ["python", "-m", "netspec"]
    if Path(executable).stem != "netspec" or shutil.which("netspec") == str(Path(executable).absolute()):
        return ["netspec"]
    return [executable]


def install_command(*extras: str) -> str:
    """Return the command that installs extras of netspec: from the clone or wheel of this netspec, else their packages.

    A name on PyPI would not do: netspec is not published there.
    """
    root, suffix = Path(__file__).resolve().parents[1], f"[{','.join(extras)}]"
    if (root / "pyproject.toml").is_file():
        return shlex.join(["pip", "install", "-e", f"{'.' if Path.cwd() == root else root}{suffix}"])
    wheel = _installed_wheel()
    return shlex.join(["pip", "install", *(_packages_of(extras) if wheel is None else [f"{wheel}{suffix}"])])


def _packages_of(extras: Sequence[str]) -> list[str]:
    """Return the requirements of extras of the installed netspec."""
    from importlib.metadata import requires

    parts = [line.partition(";") for line in requires("netspec") or []]
    return [
        requirement.strip()
        for requirement, _, marker in parts
        if any(re.search(rf"extra == ['\"]{extra}['\"]", marker) for extra in extras)
    ]


def _installed_wheel() -> str | None:
    """Return the path of the wheel from which netspec was installed, if it still exists."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(distribution("netspec").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    wheel = unquote(urlsplit(origin.get("url", "")).path)
    return wheel if Path(wheel).is_file() else None


_KINDS = {
    b"\x1f\x8b": "gzipped data",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"PK\x03\x04": "a zip",
    b"PAR1": "a Parquet file",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
}


def kind_of_file(head: bytes) -> str:
    """Describe the content of a file of an unexpected kind by its first bytes: empty, text, and others."""
    if not head:
        return "an empty file"
    if is_pickle(head):
        return "a Python pickle"
    for begin, kind in _KINDS.items():
        if head.startswith(begin):
            return kind
    return "a text file" if _is_text(head) else f"a file that begins with the bytes {head[:8].hex(' ')}"


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins so is a Python pickle; protocols 0 and 1 are known by what they mostly hold."""
    return _PICKLE.match(head) is not None


def kind_of_path(path: str | Path) -> str | None:
    """Describe an entry that is not a regular file: a folder, a pipe, a device. None for a file or if nothing exists.

    To be asked before a path is opened: opening a pipe waits for whoever writes into it.
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):  # nothing there, no permission, a zero byte in the name: opening it says which
        return None
    if stat.S_ISDIR(mode):
        return "a folder"
    return None if stat.S_ISREG(mode) else f"not a regular file but {_IRREGULAR.get(stat.S_IFMT(mode), 'a device')}"


def near_path(path: Path, *, folders: bool | None = None) -> str | None:
    """A hint for a path where nothing is: the nearest name (of `folders`, or of files alone), or what else is wrong."""
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which does not exist"
    try:
        similar = nearest_path(path, folders=folders)
    except OSError:
        return f"{path.parent} is a file" if path.parent.is_file() else f"the folder {path.parent} does not exist"
    return f"did you mean `{similar}`?" if similar is not None else None


def nearest_path(path: Path, *, folders: bool | None = None) -> Path | None:
    """The path in the same folder with a similar name, or None. Raises `OSError` if the folder cannot be read."""
    names = [entry.name for entry in path.parent.iterdir() if folders is None or entry.is_dir() == folders]
    similar = nearest(path.name, names)
    alike = similar is not None and nearest(path.stem, [Path(similar).stem])  # not only since both end in .yaml
    return path.parent / similar if similar and alike else None


def _is_text(head: bytes) -> bool:
    """Whether the bytes are text in UTF-8; a character may be cut off at their end."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return bool(text) and all(char.isprintable() or char in "\t\r\n\ufeff" for char in text)
