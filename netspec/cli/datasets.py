"""`netspec data list`, `get` and `unpack`: sources, and datasets that are known by name."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from netspec.cli.options import Json
from netspec.cli.output import count, print_json, size, table

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Select a dataset of `netspec data list`.")]
DataFolder: TypeAlias = Annotated[
    str | None,
    typer.Option("--path", metavar="DIR", help="Find or store files here [default: see above]."),
]


def list_(as_json: Json = False) -> None:
    """List data sources, and datasets for download.

    Prints each value of `source` in training files, and what it reads; then the size of each dataset, and its folder if
    it is complete.
    """
    from netspec.tools.datasets import data_sources, datasets

    sources, known_datasets = data_sources(), datasets()
    if as_json:
        entries = [{"source": source.name, "reads": source.description} for source in sources]
        print_json({"sources": entries, "datasets": [dataset.as_json() for dataset in known_datasets]})
        return
    table(["source", "what it reads"], [[source.name, source.description] for source in sources])
    print()
    rows = [
        [dataset.name, dataset.description, size(dataset.download_bytes), str(dataset.folder) * dataset.complete]
        for dataset in known_datasets
    ]
    table(["dataset", "description", "download", "folder"], rows, right=[2])


def get(name: Name, path: DataFolder = None, as_json: Json = False) -> None:
    """Download a dataset, and verify its files.

    Complete files are not downloaded again, and interrupted downloads are resumed. An archive that was downloaded by
    hand into the folder is unpacked. Training files find the dataset by its name, or with --path by `path: DIR`. By
    default, files are stored in the folder of the environment variable NETSPEC_DATA or, without it, in the user's cache
    folder.
    """
    from netspec.tools.datasets import get_dataset

    dataset = get_dataset(name, path)
    if as_json:
        print_json(dataset.as_json())
        return
    print(f"{name} is in {dataset.folder}")
    for file, nbytes in dataset.files.items():
        print(f"  {file}  {size(nbytes)}")


def unpack(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Select mnist, or a dataset of `netspec data list`.")],
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Create this folder; it must be new or empty.")],
    path: DataFolder = None,
) -> None:
    """Write an image dataset as PNG files, in class folders.

    Also writes a list of the images of each split, in the order of the dataset: training on the files gives the same
    samples in the same order as training on the dataset itself. By default, the dataset is read from the folder of the
    environment variable NETSPEC_DATA or, without it, from the user's cache folder.
    """
    from netspec.tools.datasets import unpack_dataset

    for split, images in unpack_dataset(name, folder, path).items():
        print(f"{split}: {count(images)} images")
    print(f"{name} is in {folder}; in a training file: {{source: image_folder, path: {folder}, split: train}}")
