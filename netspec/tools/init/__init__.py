"""`netspec.init`: look at data, choose a task and a small net for it, and write net.yaml and train.yaml."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from netspec.data.file_kinds import IMAGES, SOUNDS, TABLE_SUFFIXES, TEXTS, FileKind
from netspec.errors import InputError, Problem, command, kind_of_path, listing, near_path, words_of_options
from netspec.exchange.files import write_text_atomically
from netspec.tools.init.class_folders import (
    files_below,
    has_class_files,
    has_files,
    training_folder,
)
from netspec.tools.init.files import TRUNK_FILES, Files
from netspec.tools.init.project import Project
from netspec.tools.init.search_space import SearchSpace

TASKS = ("classification", "regression", "text", "forecast", "language_model")
KINDS = "a folder or list of images or sounds, texts (.txt), or a table (CSV, Parquet)"
SAMPLE_KINDS = (IMAGES, SOUNDS, TEXTS)


@dataclass(frozen=True)
class InitResult:
    """The files that `netspec.init` wrote, and what it found in the data."""

    task: str
    """The task: `image classification`, `object detection`, `semantic segmentation`, `audio classification`, `table
    classification`, `table regression`, `text classification`, `text regression`, `language model` or `forecast`."""
    net: Path
    """The net file."""
    train: Path
    """The training file."""
    findings: tuple[str, ...]
    """Findings about the data, each as a sentence."""
    warnings: tuple[str, ...]
    """Problems of the data, such as duplicates, rare classes and unreadable files, each as a sentence."""

    def as_json(self) -> dict[str, object]:
        """Return the result as plain data."""
        return {
            "task": self.task, "net": str(self.net), "train": str(self.train), "findings": list(self.findings),
            "warnings": list(self.warnings),
        }  # fmt: skip


def init(
    data: str | Path,
    *,
    target: str | None = None,
    task: str | None = None,
    output: str | Path | None = None,
    force: bool = False,
    trunk: str | Path | None = None,
    search: bool = False,
) -> InitResult:
    """Write net.yaml and train.yaml for data: images, sounds or texts in folders, a list of files, a text, or a table.

    `target` is the column to predict, by default one named `label`, `target`, `class` or `y`. `task` is chosen by the
    data unless given; `text` reads texts from a folder or from a table's column, `forecast` predicts the next rows of a
    table, and `language_model` the next token of running text: a file, or a folder of files without classes. The files
    are written next to the data or to the folder `output`; `force` overwrites them. Of large data, a sample is read,
    the same each time.

    `trunk` is a trained model on which the net for images is built, with a new head: the folder of an import, as it is;
    or a run or model file, which is imported without its last layer with parameters to `trunk.yaml` and `trunk.h5` next
    to the files. `search` writes a net with variables for its depth, width and blocks, and the values to try of these
    and of other fields, for `netspec.search`. Raises `InputError` if the data is of no known kind, or does not fit the
    trunk.

        >>> netspec.train(netspec.init("photos").train)
    """
    path = _path_of(data)
    if task not in (None, *TASKS):
        raise InputError("--task: there is no such task", expected=f"one of {listing(TASKS)}", got=task)
    folder = output_folder(path, output)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--output: {folder} is not a folder", expected="a folder, which may be new", got="a file")
    net, train = folder / "net.yaml", folder / "train.yaml"
    options = {"--target": target, "--task": task, "--trunk": trunk, "--output": _new_folder(path)}
    words = [*words_of_options(options), *["--search"] * search]
    written = [net, train]
    if trunk is not None and _is_imported(Path(trunk)):
        written += [folder / name for name in TRUNK_FILES]
    problems = _existing(written, command("init", data, *words)) if not force else []
    if problems and trunk is not None:  # whose import writes files
        raise InputError(problems)
    project = Project(path, folder, net.name, SearchSpace(searched=search))
    try:
        files = _files(project, target, task, None if trunk is None else Path(trunk))
    except OSError as error:  # such as a folder that this user must not read
        raise InputError(
            f"cannot read {error.filename or path}", expected="data that this user can read", got=error.strerror
        ) from error
    except InputError as error:  # the command may be wrong, so the hint does not repeat it
        option = shlex.join(["--output", str(_new_folder(path))])
        raise InputError([*error.problems, *(_existing(written, option) if problems else [])]) from None
    if problems:
        raise InputError(problems)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in ((net, files.net), (train, files.train)):
        write_text_atomically(file, text)
    return InitResult(files.task, net, train, tuple(files.findings), tuple(files.warnings))


def _path_of(data: str | Path) -> Path:
    """Return the path of the data. Raises `InputError` if it is not one, or is neither a file nor a folder."""
    if not isinstance(data, (str, Path)):
        raise InputError(
            "init takes the path of data, which the training file names", expected=KINDS, got=type(data).__name__,
            hint="write a data frame to a file first, such as `frame.to_csv(\"data.csv\", index=False)` with pandas",
        )  # fmt: skip
    path = Path(data)
    if not path.exists():
        raise InputError(
            f"no such file or folder: {path}", expected=KINDS, got=f"nothing at {path.absolute()}",
            hint=near_path(path) or _hint_at_content(path.parent),
        )  # fmt: skip
    if (kind := kind_of_path(path)) not in (None, "a folder"):
        raise InputError(f"{path} is not a file or folder", expected=KINDS, got=kind)
    return path


def output_folder(data: Path, output: str | Path | None) -> Path:
    """Return the folder to which the files are written: `output`, or else that of the data."""
    return Path(output) if output is not None else data if data.is_dir() else data.parent


def _is_imported(trunk: Path) -> bool:
    """Whether a trunk is imported to `TRUNK_FILES`."""
    from netspec.tools.init.trunk import is_imported  # compiles nets, which other data does not need

    return is_imported(trunk)


def _existing(files: Sequence[Path], other_folder: str) -> list[Problem]:
    """Return a problem if some of the files to write exist. `other_folder` is a command or option that avoids them."""
    existing = [str(file) for file in files if file.exists()]
    hint = f"write to a new folder: `{other_folder}`, or overwrite with --force"
    exist = "exist" if len(existing) > 1 else "exists"
    return [Problem(f"{listing(existing)} {exist} already", hint=hint)] if existing else []


def _new_folder(data: Path) -> Path:
    """Return a folder next to the data that does not exist, named after the data."""
    parent = data.parent if data.name not in ("", "..") else data / ".."
    folders = (parent / f"{data.resolve().stem}_training{number or ''}" for number in count())
    return next(folder for folder in folders if not folder.exists())


def _files(project: Project, target: str | None, task: str | None, trunk: Path | None) -> Files:
    """Return the texts of both files. Raises `InputError` if the data is of no known kind."""
    from netspec.tools.init import images, sounds, texts
    from netspec.tools.init.boxes import box_files, box_parts
    from netspec.tools.init.language_model import is_running_text, language_files
    from netspec.tools.init.masks import mask_files, mask_folders
    from netspec.tools.init.tables import table_files

    path = project.data
    root = training_folder(path) if path.is_dir() else path
    has_media = task not in ("text", "language_model")
    image_lists, sound_lists = (_lists(path, root, kind, target, task) for kind in (IMAGES, SOUNDS))
    has_images = has_media and (bool(image_lists) or (path.is_dir() and has_class_files(root, IMAGES)))
    if trunk is not None and not has_images:
        raise InputError("--trunk needs images", expected="a folder of images for each class", got=str(path))
    if path.is_file() and image_lists:
        return images.image_files(project, trunk, image_lists)
    if path.is_file() and sound_lists:
        return sounds.sound_files(project, sound_lists)
    if path.is_file() and not is_running_text(path, target, task):
        return table_files(project, target, task)
    if target is not None:
        kind = "the folder" if path.is_dir() else "the text"
        raise InputError("--target names a column of a table", expected="a table", got=f"{kind} {path}")
    if task in ("regression", "forecast"):
        raise InputError(f"--task: {task} needs a table", expected="a CSV or Parquet file", got=str(path))
    if task == "language_model" or path.is_file():
        return language_files(project)
    if has_media and trunk is None and (folders := mask_folders(path)) is not None:
        return mask_files(project, folders)
    if has_media and trunk is None and (parts := box_parts(path)) is not None:
        return box_files(project, parts)
    if has_images:
        return images.image_files(project, trunk, image_lists)
    if has_media and (sound_lists or has_class_files(root, SOUNDS)):
        return sounds.sound_files(project, sound_lists)
    if has_class_files(root, TEXTS):
        return texts.text_files(project)
    if task is None and has_files(path, TEXTS) and not any(has_files(path, kind) for kind in (IMAGES, SOUNDS)):
        return language_files(project)
    raise _unknown_data(path)


def _lists(path: Path, root: Path, kind: FileKind, target: str | None, task: str | None) -> dict[str, Path]:
    """Return the lists of files of a kind by part; empty if the data is a table, or has a folder for each class."""
    from netspec.tools.init.lists import list_parts

    if task not in (None, "classification") or target not in (None, "label", "class"):
        return {}
    has_classes = path.is_dir() and sum(has_files(child, kind) for child in root.iterdir() if child.is_dir()) > 1
    return {} if has_classes else list_parts(path, kind)


def _unknown_data(folder: Path) -> InputError:
    """Return the error for a folder without data that is recognized."""
    expected = (
        "a folder for each class, with images (JPEG, PNG, WebP, BMP, GIF, TIFF), sounds (.wav) or texts (.txt); a list "
        "of images or sounds with the columns `path` and `label`; the folders `images` and `masks`; images with boxes; "
        "running text (.txt); or a table (CSV, Parquet)"
    )
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if not names:
        return InputError(f"the folder {folder} is empty", expected=expected)
    table = next(files_below(folder, TABLE_SUFFIXES), None)
    hint = None
    if table is not None:
        hint = f"for a table in this folder, name the file: `{command('init', table)}`"
    elif any(Path(name).suffix.lower() in kind.suffixes for name in names for kind in SAMPLE_KINDS):
        hint = "move the files of each class into a folder of their own, with the name of the class"
    else:
        unread = {kind: [file for file in files_below(folder) if kind.is_unread(file)] for kind in SAMPLE_KINDS}
        hint = "; ".join(kind.describe_unread(files) for kind, files in unread.items() if files) or None
    return InputError(f"{folder} has no data that is recognized", expected=expected, got=listing(names, 5), hint=hint)


def _hint_at_content(folder: Path) -> str | None:
    """Return a hint that lists a folder; None if it is empty."""
    names = sorted(
        f"{entry.name}/" if entry.is_dir() else entry.name
        for entry in folder.iterdir() if not entry.name.startswith(".")
    )  # fmt: skip
    return f"{folder.absolute()} contains {listing(names, 10)}" if names else None
