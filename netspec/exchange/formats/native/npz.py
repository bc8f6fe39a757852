"""Weights in `.npz` files: an array for each state under its name, and the net's YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, Problem
from netspec.exchange.containers.zip_archive import MAGIC, open_zip
from netspec.exchange.files import write_atomically
from netspec.files.arrays import read_array
from netspec.files.damage import refuse_damage

WHAT = "NumPy arrays (.npz)"
NET = "netspec.net"
"""The member that contains the net's YAML as a string."""
SUFFIX = ".npy"


def is_npz(head: bytes, path: Path) -> bool:
    """Whether a file is a zip whose members are arrays."""
    if not head.startswith(MAGIC):
        return False
    try:
        with open_zip(path, WHAT) as archive:
            names = archive.namelist()
    except InputError:
        return False
    return bool(names) and all(name.endswith(SUFFIX) for name in names)


def holds(path: str | Path, name: str) -> bool:
    """Whether a file has an array of this name, by its directory. Raises `InputError`."""
    with open_zip(path, WHAT) as archive:
        return f"{name}{SUFFIX}" in archive.namelist()


def read_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file; pickles are refused. Raises `InputError` with all problems."""
    problems: list[Problem] = []
    arrays: dict[str, NDArray[Any]] = {}
    with open_zip(path, WHAT) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(SUFFIX)
            try:
                with refuse_damage(f"{path}: `{name}`", "an array of numbers"):
                    arrays[name] = _array(archive, member)
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(problems)
    return arrays


def _array(archive: ZipFile, member: ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        array = read_array(file, member.file_size)
    if array.dtype.kind not in "biufU":
        raise ValueError(f"{array.dtype} is not a numeric type")
    return array


def write_npz(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name, completely or not at all; equal arrays give equal files.

    `numpy.savez` takes names as keyword arguments, and reserves some; here any name of a layer is valid.
    """

    def write(temporary: Path) -> None:
        with ZipFile(temporary, "w") as archive:
            for name, array in arrays.items():
                with archive.open(ZipInfo(f"{name}{SUFFIX}"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)

    write_atomically(path, write)
