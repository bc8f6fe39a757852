"""Read HDF5 files of other programs, trusting nothing: only what is stored in the file itself is seen.

Soft and external links, external and virtual datasets, datasets and attributes that declare far more than they store,
and trees without an end are refused. Nothing is allocated before its size is known to be sensible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NoReturn

from netspec.errors import InputError
from netspec.exchange.files import reading

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MOST_ITEMS = 200_000
"""Groups and datasets in one file."""
DEEPEST = 64
"""Groups within groups."""
PACKED = 1100
"""How many times smaller deflate makes what it packs at best (zlib: 1032)."""
WIDEST = 64
"""How many times larger than its file everything read may be, and `SPARE` bytes more: packed zeros."""
SPARE = 2**26
DAMAGED = "copy or download it again"


class Hdf5:
    """An open file: its datasets by path, and attributes of groups. Raises `InputError` for anything not plain."""

    def __init__(self, name: str, file: Any, size: int) -> None:
        self.name, self._file, self._size = name, file, size
        self._taken = 0
        self._datasets: dict[str, Any] | None = None
        self._groups: dict[str, Any] = {"": file}

    def refuse(self, why: str) -> NoReturn:
        """Raise an `InputError` that names the file."""
        raise InputError(f"{self.name} is refused: {why}", expected="arrays and texts that are stored in it")

    def paths(self) -> list[str]:
        """Paths of all datasets, in the order in which they are stored."""
        return list(self._walked())

    def __contains__(self, path: str) -> bool:
        """Whether there is a group or a dataset."""
        return path in self._walked() or path in self._groups

    def holds(self, path: str) -> bool:
        """Whether there is a dataset at the path."""
        return path in self._walked()

    def below(self, path: str) -> list[str]:
        """Names of the groups and datasets in a group."""
        return list(self._groups[path]) if self._is_group(path) else []

    def _is_group(self, path: str) -> bool:
        """Whether there is a group: of the file itself that is known without a walk, which links would end."""
        if path not in self._groups:
            self._walked()
        return path in self._groups

    def _walked(self) -> dict[str, Any]:
        if self._datasets is None:
            self._datasets = {}
            self._walk("", self._file, ())
        return self._datasets

    def _walk(self, at: str, group: Any, above: tuple[int, ...]) -> None:
        import h5py

        assert self._datasets is not None
        if len(above) > DEEPEST:
            self.refuse(f"more than {DEEPEST} groups lie one in another at {at[:100]!r}")
        for part in group:
            path = f"{at}/{part}" if at else part
            if not isinstance(group.get(part, getlink=True), h5py.HardLink):
                self.refuse(f"{path!r} is a link to somewhere else")
            item = group[part]
            if len(self._groups) + len(self._datasets) > MOST_ITEMS:
                self.refuse(f"it holds more than {MOST_ITEMS} groups and arrays")
            if isinstance(item, h5py.Dataset):
                self._datasets[path] = item
            elif isinstance(item, h5py.Group):
                address = h5py.h5o.get_info(item.id).addr
                if address in above:
                    self.refuse(f"the group {path!r} holds itself")
                self._groups[path] = item
                self._walk(path, item, (*above, address))

    def shape(self, path: str) -> tuple[int, ...]:
        """Sizes of a dataset."""
        return tuple(self._walked()[path].shape or ())

    def array(self, path: str) -> NDArray[Any]:
        """The numbers of a dataset. Those of two bytes that are marked as bfloat16 become float32."""
        import h5py
        import numpy as np

        dataset = self._walked()[path]
        plist = dataset.id.get_create_plist()
        layout = plist.get_layout()
        if plist.get_external_count() or layout == h5py.h5d.VIRTUAL:
            self.refuse(f"the numbers of {path!r} are in other files")
        marked = dataset.attrs.get("dtype") if "dtype" in dataset.attrs else None
        brain = marked in ("bfloat16", b"bfloat16")
        if dataset.shape is None or not (dataset.dtype.kind in "fiub" or brain):
            self.refuse(f"{path!r} holds no numbers, but {str(dataset.dtype)[:60]}")
        stored, nbytes = dataset.id.get_storage_size(), dataset.dtype.itemsize * dataset.size
        limit = stored if layout in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT) else stored * PACKED
        self._taken += nbytes
        if nbytes > limit or self._taken > self._size * WIDEST + SPARE:
            self.refuse(f"{path!r} declares {nbytes} bytes, {stored} are stored")
        array: NDArray[Any] = np.asarray(dataset[()])
        if brain and array.dtype.itemsize == 2:
            return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return array

    def attribute(self, path: str, name: str) -> Any:
        """An attribute of a group or of the file: a text, a list of texts, a number, or None where there is none.

        A list that is too long for one attribute may be given in parts called `name0`, `name1`, …
        """
        attributes = self._groups[path].attrs if self._is_group(path) else {}
        if name in attributes:
            return self._plain(path, name, attributes)
        parts: list[Any] = []
        while f"{name}{len(parts)}" in attributes:
            parts.append(self._plain(path, f"{name}{len(parts)}", attributes))
        if any(not isinstance(part, list) for part in parts):
            self.refuse(f"the attribute {name!r} in parts is no list")
        return [one for part in parts for one in part] if parts else None

    def _plain(self, path: str, name: str, attributes: Any) -> Any:
        import h5py
        import numpy as np

        held = attributes.get_id(name)
        count = int(np.prod(held.shape, dtype=np.float64)) if held.shape is not None else 0
        text = h5py.check_string_dtype(held.dtype) is not None or held.dtype.kind == "S"
        if not (text or held.dtype.kind in "fiub") or count * held.dtype.itemsize > self._size:
            self.refuse(f"the attribute {name!r} of {path or 'the file'!r} is no text, list of texts or number")
        return _decoded(attributes[name])


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    found = value.tolist() if hasattr(value, "tolist") else value
    return [_decoded(one) for one in found] if isinstance(found, list) else _decoded_one(found)


def _decoded_one(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@contextmanager
def open_hdf5(path: str | Path, what: str) -> Iterator[Hdf5]:
    """An HDF5 file opened for reading; `what` says what it should be, for messages. Damage ends in an `InputError`."""
    with reading(path, what) as (file, size), opened_hdf5(str(path), file, size, what) as found:
        yield found


@contextmanager
def opened_hdf5(name: str, file: BufferedReader | Any, size: int, what: str) -> Iterator[Hdf5]:
    """As `open_hdf5`, of something like a file, of `size` bytes; messages call it `name`."""
    import h5py

    file.seek(0)
    try:
        with h5py.File(file, "r") as opened:
            yield Hdf5(name, opened, size)
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InputError(f"{name} is damaged", expected=what, got=str(error)[:200], hint=DAMAGED) from error
