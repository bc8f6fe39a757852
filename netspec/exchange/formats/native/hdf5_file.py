"""netspec's own HDF5 files (docs/formats.md): their layout, how they are written, and how they are read.

The first 512 bytes are an HDF5 user block that says in plain text what the file is, with the size and checksum of the
rest. `head -3` shows what a file is, and libhdf5 never sees a damaged one. The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError
from netspec.exchange.containers.protobuf import is_onnx
from netspec.exchange.files import reading, sniff, write_atomically
from netspec.files.damage import refuse_damage
from netspec.files.hdf5 import Entry, Hdf5File, StoredArray

Kind = Literal["weights", "checkpoint", "capsule"]

BLOCK_BYTES = 512
VERSION = 1
MAGIC = b"netspec "
CHECKSUM_LINE = b"\nsha256 "
MANIFEST = "manifest"
ARRAYS = "arrays"
DTYPES = (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"
)  # fmt: skip

_FIRST_LINE = re.compile(rb"netspec [a-z]+ [0-9]")
_BLOCK = re.compile(
    rb"netspec (?P<kind>[a-z]+) (?P<version>[0-9]{1,9})\nsize (?P<size>[0-9]{1,18})\nsha256 (?P<sha256>[0-9a-f]{64})\n"
    rb"(?:step (?P<step>[0-9]{1,18})\n)?\n*\Z"
)


@dataclass(frozen=True)
class HeaderBlock:
    """The text block: the kind of file, its version, its size in bytes, and the checksum of the rest."""

    kind: str
    version: int
    size: int
    sha256: str
    step: int | None = None

    def render(self) -> bytes:
        """The block as bytes, padded with line feeds."""
        lines = [f"netspec {self.kind} {self.version}", f"size {self.size}", f"sha256 {self.sha256}"]
        if self.step is not None:
            lines.append(f"step {self.step}")
        return "".join(line + "\n" for line in lines).encode().ljust(BLOCK_BYTES, b"\n")

    @classmethod
    def parse(cls, head: bytes) -> HeaderBlock | None:
        """The block at the beginning of a file; None if it is missing or malformed."""
        match = _BLOCK.match(head[:BLOCK_BYTES])
        if match is None or len(head) < BLOCK_BYTES:
            return None
        step = match["step"]
        block = cls(
            match["kind"].decode(), int(match["version"]), int(match["size"]), match["sha256"].decode(),
            None if step is None else int(step),
        )  # fmt: skip
        return block if block.render() == head[:BLOCK_BYTES] else None


def is_own(head: bytes, path: Path) -> bool:
    """Whether a file begins with the text block, even if it is damaged after that."""
    return _FIRST_LINE.match(head) is not None


def dataset_path(name: str, names: Collection[str]) -> str:
    """The path of the array `name` below `/arrays`, as one of `names` in the file.

    The path is the name itself; `/` makes groups. Names that HDF5 cannot hold (`a/./b`, or both `a` and `a/b`) become
    one link with `%`, `/` and `.` escaped as `%25`, `%2F` and `%2E`.
    """
    parts = name.split("/")
    plain = all(part not in ("", ".") for part in parts) and "%" not in name
    nested = any("/".join(parts[:count]) in names for count in range(1, len(parts)))
    if plain and not nested:
        return name
    return name.replace("%", "%25").replace("/", "%2F").replace(".", "%2E")


WRITTEN: set[str] = set()
"""Checksums of the files that this process wrote: they are read without a separate process."""


def write_file(
    path: str | Path,
    kind: Kind,
    arrays: Mapping[str, NDArray[Any]],
    roles: Mapping[str, str],
    meta: Mapping[str, Any],
    step: int | None = None,
) -> None:
    """Write arrays, each with its role, and `meta` (JSON) as a file of the given kind, completely or not at all.

    Raises `RunError` if the disk rejects it, `ValueError` for an array or a `meta` that no file can store.
    """
    stored_arrays = {name: _plain(name, array) for name, array in arrays.items()}
    entries: list[dict[str, Any]] = [
        {
            "name": name,
            "path": dataset_path(name, stored_arrays),
            "role": roles.get(name, "parameter"),
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "crc32": checksum(array),
        }
        for name, array in stored_arrays.items()
    ]
    manifest = {"kind": kind, "version": VERSION, "arrays": entries, "meta": dict(meta)}
    text = json.dumps(manifest, ensure_ascii=False, indent=1).encode()

    image = _image(kind, text, {entry["path"]: stored_arrays[entry["name"]] for entry in entries})
    _seal(image, kind, step)

    write_atomically(path, lambda temporary: temporary.write_bytes(image))


def checksum(array: NDArray[Any]) -> int:
    """CRC-32 of an array's bytes in C order, little-endian."""
    return crc32(array.reshape(-1).view("uint8").data)


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order and little-endian. `ascontiguousarray` alone would give a scalar an axis."""
    array = np.asarray(array)
    if str(array.dtype.newbyteorder("=")) not in DTYPES:
        raise ValueError(f"{name}: arrays of {array.dtype} are not held in files")
    if not name or "\0" in name:
        raise ValueError(f"{name!r} cannot name an array")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _image(kind: str, manifest: bytes, arrays: Mapping[str, NDArray[np.generic]]) -> memoryview:
    """The whole file, with a blank text block.

    It is built in memory: on a full disk, libhdf5 fails when it closes the file, and aborts the process.
    """
    import h5py

    buffer = BytesIO()
    # The oldest structures that can store the content: every version of the library writes them alike.
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
    WRITTEN.add(digest)
    image[:BLOCK_BYTES] = HeaderBlock(kind, VERSION, len(image), digest, step).render()


ROLES = ("parameter", "statistic", "slot", "gradient", "residual", "center", "worker", "input", "table")
DAMAGED = "copy or download it again, or use an earlier one"


@dataclass(frozen=True)
class Content:
    """Content of a file."""

    kind: str
    arrays: dict[str, NDArray[Any]]
    roles: dict[str, str]
    meta: dict[str, Any]


def read_block(path: str | Path, expected: str) -> HeaderBlock:
    """The text block of a file. Raises `InputError` unless it is one of netspec's own, of a supported version."""
    with reading(path, expected) as (file, size):
        return _block(path, file, size, expected)


def verify_file(path: str | Path, expected: str) -> HeaderBlock:
    """The text block of a file, after its checksum was verified."""
    with reading(path, expected) as (file, size):
        block = _block(path, file, size, expected)
        _verify(path, file, block)
        return block


def read_file(path: str | Path, expected: str) -> Content:
    """Read the content of a file. Raises `InputError` with the problem."""
    path = Path(path)
    block = verify_file(path, expected)
    with refuse_damage(path, expected, DAMAGED):
        content = _Reader(Hdf5File(str(path), path, expected, trusted=block.sha256 in WRITTEN)).content()
    if content.kind != block.kind or (block.step is not None and _step(content.meta) != block.step):
        raise InputError(
            f"{path} is damaged: its first lines contradict its content", expected=_describe(block.kind, block.step),
            got=_describe(content.kind, _step(content.meta)), hint=DAMAGED,
        )  # fmt: skip
    return content


def _describe(kind: str, step: object) -> str:
    return f"a {kind} file" if step is None else f"a {kind} file of step {step}"


def _step(meta: dict[str, Any]) -> object:
    progress = meta.get("progress")
    return progress.get("step") if isinstance(progress, dict) else None


def _block(path: str | Path, file: BufferedReader, size: int, expected: str) -> HeaderBlock:
    head = file.read(BLOCK_BYTES)
    block = HeaderBlock.parse(head)
    if block is None:
        if head.startswith(MAGIC) or CHECKSUM_LINE in head:
            short = f"; the file has {size} bytes only" if size < BLOCK_BYTES else ""
            raise InputError(f"{path} is damaged in its first lines{short}", expected=expected, hint=DAMAGED)
        of_onnx = "an ONNX model", "`netspec import` reads it"
        got, hint = of_onnx if is_onnx(head, Path(path)) else sniff(head)
        raise InputError(f"{path} is not an HDF5 file that netspec wrote", expected=expected, got=got, hint=hint)
    if block.version > VERSION:
        raise InputError(
            f"{path} was written by a later netspec", expected=f"format version {VERSION} or lower",
            got=f"version {block.version}", hint="upgrade netspec",
        )  # fmt: skip
    if block.kind not in get_args(Kind) or block.version < 1:
        got = f"{block.kind} {block.version}"
        raise InputError(f"{path} is of an unknown kind", expected=expected, got=got, hint=DAMAGED)
    if block.size != size:
        state = "cut short" if size < block.size else "longer than it was written"
        raise InputError(f"{path} is {state}", expected=f"{block.size} bytes", got=f"{size} bytes", hint=DAMAGED)
    return block


def _verify(path: str | Path, file: BufferedReader, block: HeaderBlock) -> None:
    file.seek(BLOCK_BYTES)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != block.sha256:
        raise InputError(
            f"{path} is damaged: its checksum is wrong", expected=f"sha256 {block.sha256}", got=f"sha256 {digest}",
            hint=DAMAGED,
        )  # fmt: skip


class _Reader:
    """Reads the content of an open file. Only plain, stored arrays are accepted, since a file may be malicious."""

    def __init__(self, file: Hdf5File) -> None:
        self.file = file
        self.nbytes = 0
        self.entries: dict[str, Entry] = {}

    def content(self) -> Content:
        """Everything that the manifest lists."""
        manifest = self._manifest()
        entries, meta, kind = (manifest.get(key) for key in ("arrays", "meta", "kind"))
        if not isinstance(entries, list) or not isinstance(meta, dict) or not isinstance(kind, str):
            self._refuse("its manifest lacks `arrays`, `meta` or `kind`")
        self._find(entries)
        arrays: dict[str, NDArray[Any]] = {}
        roles: dict[str, str] = {}
        for entry in entries:
            name, role = (entry.get("name"), entry.get("role")) if isinstance(entry, dict) else (None, None)
            if not isinstance(name, str) or role not in ROLES or name in arrays:
                self._refuse(f"its manifest has an entry that is wrong: {str(entry)[:200]}")
            arrays[name] = self._array(name, entry)
            roles[name] = role
        return Content(kind, arrays, roles, meta)

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(f"{self.file.name} is refused: {why}", expected="a file as netspec writes it", hint=DAMAGED)

    def _find(self, entries: list[Any]) -> None:
        """Collect the entries of the file; refuse any that its manifest does not list."""
        paths = [entry.get("path") if isinstance(entry, dict) else None for entry in entries]
        listed = {MANIFEST, *(f"{ARRAYS}/{path}" for path in paths)}
        groups = {path[:end] for path in listed for end, char in enumerate(path) if char == "/"} | {ARRAYS}
        deepest, most = max(path.count("/") for path in listed) + 2, len(listed) + len(groups) + 1
        for entry in self.file.walk(deepest=deepest, most=most):
            if entry.path not in (groups if entry.kind == "group" else listed):
                self._refuse(f"it holds {entry.path!r}, which its manifest does not list")
            self.entries[entry.path] = entry

    def _manifest(self) -> dict[str, Any]:
        stored = self._stored(MANIFEST, self.file.find(MANIFEST))
        dtype = np.dtype(stored.dtype)
        if stored.shape != () or dtype.kind not in "SO" or dtype.itemsize > self.file.size:
            self._refuse("its manifest is not text")
        if dtype.kind == "O" or stored.stored != dtype.itemsize:
            self._refuse("its manifest is stored in another way")
        manifest = json.loads(bytes(self.file.values(stored)[()]).decode())
        if not isinstance(manifest, dict):
            self._refuse("its manifest is not a JSON object")
        return manifest

    def _array(self, name: str, entry: dict[str, Any]) -> NDArray[Any]:
        dtype, shape, path = entry.get("dtype"), entry.get("shape"), entry.get("path")
        if dtype not in DTYPES or not isinstance(shape, list) or not isinstance(path, str):
            self._refuse(f"its manifest describes {name!r} wrongly")
        path = f"{ARRAYS}/{path}"
        stored = self._stored(path, self.entries.get(path))
        if str(np.dtype(stored.dtype)) != dtype or stored.shape is None or list(stored.shape) != shape:
            self._refuse(f"{name!r} is {stored.type}{stored.shape}, its manifest says {dtype}{shape}")
        self.nbytes += stored.nbytes
        if stored.stored != stored.nbytes or self.nbytes > self.file.size:
            self._refuse(f"{name!r} declares {stored.nbytes} bytes, more than are stored")
        array = self.file.values(stored)
        if checksum(array) != entry.get("crc32"):
            self._refuse(f"{name!r} has another checksum than its manifest says")
        return array

    def _stored(self, path: str, entry: Entry | None) -> StoredArray:
        """Return the storage of the dataset at a path; each part of the path must be a group of the file itself."""
        if entry is None:
            self._refuse(f"there is no {path!r} in it")
        if entry.kind == "link":
            self._refuse(f"{path!r} is a link, not stored here")
        if entry.array is None:
            self._refuse(f"{path!r} is not a numeric array" + (f": {entry.fault}" if entry.fault else ""))
        if entry.array.external or entry.array.layout != "contiguous":
            self._refuse(f"{path!r} is external, virtual, compressed or chunked")
        return entry.array
