"""Write one of netspec's own HDF5 files: the same content gives the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from netspec.exchange.files import write_atomically
from netspec.exchange.hdf5_format import ARRAYS, BLOCK_BYTES, DTYPES, MANIFEST, VERSION, Block, Kind, dataset_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def write_file(
    path: str | Path,
    kind: Kind,
    arrays: Mapping[str, NDArray[Any]],
    roles: Mapping[str, str],
    meta: Mapping[str, Any],
    step: int | None = None,
) -> None:
    """Write arrays, each with its role, and `meta` (JSON) as a file of the given kind, whole or not at all.

    Raises `RunError` where the disk does not take it, `ValueError` for an array or a `meta` that no file can hold.
    """
    import numpy as np

    held = {name: _plain(np, name, array) for name, array in arrays.items()}
    entries: list[dict[str, Any]] = [
        {
            "name": name,
            "path": dataset_path(name, held),
            "role": roles.get(name, "parameter"),
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "crc32": checksum(array),
        }
        for name, array in held.items()
    ]
    manifest = {"kind": kind, "version": VERSION, "arrays": entries, "meta": dict(meta)}
    text = json.dumps(manifest, ensure_ascii=False, indent=1).encode()

    image = _image(kind, text, {entry["path"]: held[entry["name"]] for entry in entries})
    _seal(image, kind, step)

    def write(temporary: Path) -> None:
        temporary.write_bytes(image)

    write_atomically(path, write)


def checksum(array: NDArray[Any]) -> int:
    """CRC-32 of an array's bytes in C order, little-endian."""
    return crc32(array.reshape(-1).view("uint8").data)


def _plain(np: Any, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order and little-endian. `ascontiguousarray` alone would give a scalar an axis."""
    array = np.asarray(array)
    if str(array.dtype.newbyteorder("=")) not in DTYPES:
        raise ValueError(f"{name}: arrays of {array.dtype} are not held in files")
    if not name or "\0" in name:
        raise ValueError(f"{name!r} is no name of an array")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")  # type: ignore[no-any-return]  # np is Any


def _image(kind: str, manifest: bytes, arrays: Mapping[str, NDArray[np.generic]]) -> memoryview:
    """The whole file, its text block still blank.

    It is made in memory: where a disk is full, libhdf5 fails when it closes the file, and takes the process with it.
    """
    import h5py

    buffer = BytesIO()
    # The oldest structures that hold what is written: they are the same in every version of the library.
    with h5py.File(buffer, "w", libver=("earliest", "v110"), userblock_size=BLOCK_BYTES) as file:
        file.attrs["netspec"] = kind
        file.attrs["version"] = VERSION
        file.create_dataset(MANIFEST, data=manifest, dtype=h5py.string_dtype("utf-8", len(manifest)), track_times=False)
        group = file.create_group(ARRAYS)
        for where, array in arrays.items():
            group.create_dataset(where, data=array, track_times=False)
    return buffer.getbuffer()


def _seal(image: memoryview, kind: str, step: int | None) -> None:
    """Write the text block, which needs the checksum of all after it."""
    digest = hashlib.sha256(image[BLOCK_BYTES:]).hexdigest()
    image[:BLOCK_BYTES] = Block(kind, VERSION, len(image), digest, step).render()
