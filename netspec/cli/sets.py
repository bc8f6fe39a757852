"""`netspec data sets`, `get` and `unpack`: the sets that are known by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from netspec.cli.options import Json
from netspec.cli.output import print_json, size, table

if TYPE_CHECKING:
    from netspec.data.known_datasets import KnownSet

Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="Select a dataset that `netspec data sets` lists.")
]
Place: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="FOLDER",
        help=("Read or store its files in this folder [default: below NETSPEC_DATA, else the user's cache folder]."),
        show_default=False,
    ),
]


def sets(as_json: Json = False) -> None:
    """List the sets that are known by name, and where they are."""
    from netspec.data.known_datasets import KNOWN_SETS

    found = [_facts(known, None) for known in KNOWN_SETS.values()]
    if as_json:
        print_json(found)
        return
    rows = [[one["name"], one["about"], size(one["bytes"]), one["folder"] if one["there"] else ""] for one in found]
    table(["set", "what it is", "to fetch", "it is in"], rows, right=[2])


def get(name: Name, path: Place = None, as_json: Json = False) -> None:
    """Fetch a set, so that a training finds it, and check every file of it.

    Complete files are not fetched again, and interrupted downloads are resumed. An archive that was downloaded by hand
    into the folder is unpacked.
    """
    from netspec.data.dataset_files import wrong_parts
    from netspec.data.downloads import ensure
    from netspec.errors import InputError

    known = _known(name)
    folder = ensure(known, None if path is None else Path(path).expanduser().absolute())
    wrong = wrong_parts(known, folder)
    if wrong:
        raise InputError(
            f"{len(wrong)} of the files in {folder} are not those of {name}",
            expected="the SHA-256 that were published",
            got=", ".join(part.name for part in wrong),
            hint="remove them, and they are fetched again",
        )
    if as_json:
        print_json(_facts(known, folder))
        return
    print(f"{name} is in {folder}")
    for part in known.parts.values():
        print(f"  {part.name}  {size(part.size)}")


def unpack(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Select an image dataset: mnist, or one that `netspec data sets` lists."),
    ],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Create this folder; it must be new or empty.")],
    path: Place = None,
) -> None:
    """Write a set of images as PNG files, in class folders, with a list for each split.

    The lists keep the order of the set: a training from them is, sample by sample, one from the set itself.
    """
    from netspec.exchange.files import new_folder
    from netspec.tools.datasets import open_split, unpack_split

    with new_folder(Path(folder)) as staged:
        for split in ("train", "test"):
            count = unpack_split(open_split(name, split, path), split, staged)
            print(f"{split}: {count:,} images")
    print(
        f"{name} is in {folder}; a split of it in a train file: {{source: image_folder, path: {folder}, split: train}}"
    )


def _known(name: str) -> KnownSet:
    from netspec.data.known_datasets import KNOWN_SETS
    from netspec.errors import InputError, did_you_mean, listing

    if name not in KNOWN_SETS:
        raise InputError(
            f"there is no known set `{name}`" if name != "mnist" else "mnist is shipped, and need not be fetched",
            expected=f"one of {listing(list(KNOWN_SETS))}",
            hint=did_you_mean(name, KNOWN_SETS),
        )
    return KNOWN_SETS[name]


def _facts(known: KnownSet, folder: Path | None) -> dict[str, Any]:
    from netspec.data.dataset_files import is_there
    from netspec.data.known_datasets import home

    folder = folder or home() / known.name
    return {
        "name": known.name,
        "about": known.about,
        "page": known.page,
        "bytes": sum(download.size for download in known.downloads),
        "folder": str(folder),
        "there": all(is_there(known, folder, part) for part in known.parts.values()),
    }
