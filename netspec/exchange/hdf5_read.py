"""Read one of netspec's own HDF5 files, trusting nothing: damage and malice end in an `InputError`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from netspec.errors import InputError
from netspec.exchange.files import reading, sniff
from netspec.exchange.hdf5_format import ARRAYS, BLOCK_BYTES, DTYPES, MAGIC, MANIFEST, VERSION, Block
from netspec.exchange.hdf5_write import checksum

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROLES = ("parameter", "statistic", "slot", "gradient", "residual", "center", "worker")
DAMAGED = "copy or download it again, or use an earlier one"


@dataclass(frozen=True)
class Content:
    """What a file holds."""

    kind: str
    arrays: dict[str, NDArray[Any]]
    roles: dict[str, str]
    meta: dict[str, Any]


def read_block(path: str | Path, what: str) -> Block:
    """The text block of a file; raises `InputError` unless it is one of netspec's own, of a version known here."""
    with reading(path, what) as (file, size):
        return _block(path, file, size, what)


def verify_file(path: str | Path, what: str) -> Block:
    """The text block of a file whose every byte was found to be as it was written."""
    with reading(path, what) as (file, size):
        block = _block(path, file, size, what)
        _verify(path, file, block)
        return block


def read_file(path: str | Path, what: str) -> Content:
    """All that a file holds. Raises `InputError` naming what is wrong with it."""
    import h5py

    path = Path(path)
    with reading(path, what) as (file, size):
        block = _block(path, file, size, what)
        _verify(path, file, block)
        file.seek(0)
        try:
            with h5py.File(file, "r") as opened:
                content = _Reader(path, opened, size).content()
        except (OSError, KeyError, RuntimeError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise InputError(f"{path} is damaged", expected=what, got=str(error), hint=DAMAGED) from error
    if content.kind != block.kind or (block.step is not None and _step(content.meta) != block.step):
        raise InputError(f"{path} contradicts itself", expected=f"a {block.kind} file", got=f"a {content.kind} file")
    return content


def _step(meta: dict[str, Any]) -> object:
    progress = meta.get("progress")
    return progress.get("step") if isinstance(progress, dict) else None


def _block(path: str | Path, file: BufferedReader, size: int, what: str) -> Block:
    head = file.read(BLOCK_BYTES)
    block = Block.parse(head)
    if block is None:
        if head.startswith(MAGIC):
            short = f"; the file has {size} bytes only" if size < BLOCK_BYTES else ""
            raise InputError(f"{path} is damaged in its first lines{short}", expected=what, hint=DAMAGED)
        found, hint = sniff(head)
        raise InputError(f"{path} is not a file of netspec's own", expected=what, got=found, hint=hint)
    if block.version > VERSION:
        raise InputError(
            f"{path} was written by a later netspec", expected=f"format version {VERSION} or lower",
            got=f"version {block.version}", hint="upgrade netspec",
        )  # fmt: skip
    if block.kind not in ("weights", "checkpoint") or block.version < 1:
        raise InputError(f"{path} is of an unknown kind", expected=what, got=f"{block.kind} {block.version}")
    if block.size != size:
        state = "cut short" if size < block.size else "longer than it was written"
        raise InputError(f"{path} is {state}", expected=f"{block.size} bytes", got=f"{size} bytes", hint=DAMAGED)
    return block


def _verify(path: str | Path, file: BufferedReader, block: Block) -> None:
    file.seek(BLOCK_BYTES)
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != block.sha256:
        raise InputError(
            f"{path} is damaged: its checksum is wrong", expected=f"sha256 {block.sha256}", got=f"sha256 {found}",
            hint=DAMAGED,
        )  # fmt: skip


class _Reader:
    """Takes the content out of an open file. A file may be made to deceive: only plain, stored arrays are read."""

    def __init__(self, path: Path, file: Any, size: int) -> None:
        self.path, self.file, self.size = path, file, size
        self.taken = 0

    def content(self) -> Content:
        """Everything that the manifest lists."""
        manifest = self._manifest()
        entries, meta, kind = (manifest.get(key) for key in ("arrays", "meta", "kind"))
        if not isinstance(entries, list) or not isinstance(meta, dict) or not isinstance(kind, str):
            self._refuse("its manifest lacks `arrays`, `meta` or `kind`")
        arrays: dict[str, NDArray[Any]] = {}
        roles: dict[str, str] = {}
        for entry in entries:
            name, role = (entry.get("name"), entry.get("role")) if isinstance(entry, dict) else (None, None)
            if not isinstance(name, str) or role not in ROLES or name in arrays:
                self._refuse(f"its manifest has an entry that is wrong: {str(entry)[:200]}")
            arrays[name] = self._array(name, entry)
            roles[name] = role
        self._refuse_more({MANIFEST, *(f"{ARRAYS}/{entry['path']}" for entry in entries)})
        return Content(kind, arrays, roles, meta)

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(f"{self.path} is refused: {why}", expected="a file as netspec writes it", hint=DAMAGED)

    def _refuse_more(self, listed: set[str]) -> None:
        """Refuse what the file holds beyond what its manifest lists."""
        inner = {where[:end] for where in listed for end, char in enumerate(where) if char == "/"} | {ARRAYS}
        pending = [""]
        while pending:
            at = pending.pop()
            for part in self.file[at or "/"]:
                where = f"{at}/{part}" if at else part
                if where in inner and where not in listed:
                    pending.append(where)
                elif where not in listed:
                    self._refuse(f"it holds {where!r}, which its manifest does not list")

    def _manifest(self) -> dict[str, Any]:
        dataset = self._dataset(MANIFEST)
        if dataset.shape != () or dataset.dtype.kind not in "SO" or dataset.dtype.itemsize > self.size:
            self._refuse("its manifest is no text")
        if dataset.dtype.kind == "O" or dataset.id.get_storage_size() != dataset.dtype.itemsize:
            self._refuse("its manifest is stored in another way")
        found = json.loads(bytes(dataset[()]).decode())
        if not isinstance(found, dict):
            self._refuse("its manifest is no JSON object")
        return found

    def _array(self, name: str, entry: dict[str, Any]) -> NDArray[Any]:
        dtype, shape, where = entry.get("dtype"), entry.get("shape"), entry.get("path")
        if dtype not in DTYPES or not isinstance(shape, list) or not isinstance(where, str):
            self._refuse(f"its manifest describes {name!r} wrongly")
        dataset = self._dataset(f"{ARRAYS}/{where}")
        if str(dataset.dtype) != dtype or list(dataset.shape or ()) != shape or dataset.shape is None:
            self._refuse(f"{name!r} is {dataset.dtype}{dataset.shape}, its manifest says {dtype}{shape}")
        nbytes = dataset.dtype.itemsize * dataset.size
        self.taken += nbytes
        if dataset.id.get_storage_size() != nbytes or self.taken > self.size:
            self._refuse(f"{name!r} declares {nbytes} bytes, more than are stored")
        array: NDArray[Any] = dataset[()] if shape else _scalar(dataset)
        if checksum(array) != entry.get("crc32"):
            self._refuse(f"{name!r} has another checksum than its manifest says")
        return array

    def _dataset(self, where: str) -> Any:
        """The dataset at a path, each step of which must be a link within the file to something stored plainly."""
        import h5py

        item: Any = self.file
        for part in where.split("/"):
            if not isinstance(item, h5py.Group) or part in ("", ".") or part not in item:
                self._refuse(f"there is no {where!r} in it")
            if not isinstance(item.get(part, getlink=True), h5py.HardLink):
                self._refuse(f"{where!r} is a link to somewhere else")
            item = item[part]
        if not isinstance(item, h5py.Dataset):
            self._refuse(f"{where!r} holds no numbers")
        plist = item.id.get_create_plist()
        if plist.get_external_count() or plist.get_layout() != h5py.h5d.CONTIGUOUS:
            self._refuse(f"{where!r} is external, virtual, packed or in pieces")
        return item


def _scalar(dataset: Any) -> NDArray[Any]:
    import numpy as np

    return np.asarray(dataset[()])
