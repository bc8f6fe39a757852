"""Reads HDF5 files for another process: on damaged files the library may loop forever, or crash.

Run as a script; it imports nothing of netspec. A request is a line of JSON. An answer is two 8-byte integers
(little-endian), the sizes of what follows: a JSON object, and bytes. Each request states the CPU time that it may
use, after which the system ends this process. The process ends by itself at the end of its input.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import IO, Any

SIZES = struct.Struct("<qq")
CACHE = 2**26
"""Bytes of decompressed chunks that are cached for each dataset, so that neighbors are not decompressed again."""
LAYOUTS = {"CONTIGUOUS": "contiguous", "COMPACT": "compact", "CHUNKED": "chunked", "VIRTUAL": "virtual"}


class Server:
    """Open files and their datasets: the library caches decompressed chunks for as long as a dataset is open."""

    def __init__(self, requests: IO[bytes]) -> None:
        self.requests = requests
        self.files: dict[int, Any] = {}
        self.datasets: dict[int, dict[str, Any]] = {}

    def respond(self, request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Answer a request by an object, with the `error` if the library raises one, and bytes."""
        try:
            return self._answer(request)
        except Exception as error:  # the other process reports whatever the library raises
            return {"error": _reason(error)}, b""

    def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        for number in request["close"]:
            self.datasets.pop(number, None)
            opened = self.files.pop(number, None)
            if opened is not None:
                opened.close()
        if request["do"] == "open":
            return self.open(**request), b""
        opened = self.files[request["file"]]
        if request["do"] == "read":
            return self.read(opened, **request)
        return {"result": _READERS[request["do"]](opened, **request)}, b""

    def open(self, file: int, path: str, size: int, **_: Any) -> dict[str, Any]:
        """Open the file at a path, or one of `size` bytes that follow the request."""
        import h5py

        source: Any = path or BytesIO(self.requests.read(size))
        self.files[file] = h5py.File(source, "r", rdcc_nbytes=CACHE, locking=False)  # it may be replaced at any time
        self.datasets[file] = {}
        return {}

    def read(self, opened: Any, file: int, path: str, rows: list[int] | None, **_: Any) -> tuple[dict[str, Any], Any]:
        """The values of a dataset, or of some of its rows, in C order."""
        import numpy as np

        datasets = self.datasets[file]
        if path not in datasets:
            datasets[path] = opened[path]
        dataset = datasets[path]
        if rows is None:
            values = np.asarray(dataset[()])
        else:  # in one slice: selecting rows in the library takes far longer
            first, last = min(rows), max(rows)
            values = dataset[first : last + 1]
            if len(rows) != len(values) or rows != list(range(first, last + 1)):
                values = values[np.asarray(rows) - first]
        return {}, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def walk(opened: Any, path: str, deepest: int, most: int, **_: Any) -> list[dict[str, Any]]:
    """List the entries of a group and of the groups in it, at most `deepest` levels and `most` entries."""
    import h5py

    entries: list[dict[str, Any]] = []

    def below(at: str, group: Any, above: tuple[int, ...]) -> None:
        for name in group:
            if len(entries) == most:
                return
            where = f"{at}/{name}" if at else name
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                entries.append({"path": where, "kind": "link"})
                continue
            item = group[name]
            entries.append(_entry(where, item))
            if isinstance(item, h5py.Group) and deepest > len(above):
                address = h5py.h5o.get_info(item.id).addr
                if address in above:
                    entries[-1]["kind"] = "loop"
                else:
                    below(where, item, (*above, address))

    group = opened[path] if path else opened
    below(path, group, (h5py.h5o.get_info(group.id).addr,))
    return entries


def find(opened: Any, path: str, **_: Any) -> dict[str, Any] | None:
    """The entry at a path, also through links within the file."""
    import h5py

    at: Any = opened
    for name in path.split("/"):
        if not isinstance(at, h5py.Group) or isinstance(at.get(name, getlink=True), h5py.ExternalLink):
            return None
        at = at.get(name)
    return None if at is None else _entry(path, at)


def attributes(opened: Any, path: str, **_: Any) -> list[str]:
    """Names of the attributes of a group."""
    return list((opened[path] if path else opened).attrs)


def attribute(opened: Any, path: str, name: str, most: int, **_: Any) -> Any:
    """An attribute of a group: text, a number, or lists of these. Raises `TypeError` for other or larger ones."""
    import h5py
    import numpy as np

    attrs = (opened[path] if path else opened).attrs
    attribute_id = attrs.get_id(name)
    count = int(np.prod(attribute_id.shape, dtype=np.float64)) if attribute_id.shape is not None else 0
    text = h5py.check_string_dtype(attribute_id.dtype) is not None or attribute_id.dtype.kind == "S"
    if not (text or attribute_id.dtype.kind in "fiub") or count * attribute_id.dtype.itemsize > most:
        raise TypeError(
            f"the attribute {name!r} of {path or 'the file'!r} is not a string, a number, or a list of these"
        )
    return _plain(attrs[name])


def text(opened: Any, path: str, **_: Any) -> str:
    """The string in a dataset with a single one. Raises `TypeError` for other datasets."""
    import h5py

    dataset = opened[path]
    if dataset.size != 1 or h5py.check_string_dtype(dataset.dtype) is None:
        raise TypeError(f"{path!r} is not a string")
    value = _plain(dataset[()])
    return str(value[0] if isinstance(value, list) else value)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_READERS: dict[str, Callable[..., Any]] = {
    "walk": walk, "find": find, "attributes": attributes, "attribute": attribute, "text": text
}  # fmt: skip


def _entry(path: str, item: Any) -> dict[str, Any]:
    """Describe an object, and how it is stored if it is a dataset."""
    import h5py

    if isinstance(item, h5py.Group):
        return {"path": path, "kind": "group"}
    if not isinstance(item, h5py.Dataset):
        return {"path": path, "kind": "other"}
    try:
        return {"path": path, "kind": "dataset", "dataset": _dataset(path, item)}
    except Exception as error:  # it only matters if the dataset is used
        return {"path": path, "kind": "dataset", "fault": _reason(error)}


def _dataset(path: str, item: Any) -> dict[str, Any]:
    import h5py

    plan, dtype = item.id.get_create_plist(), item.dtype
    layouts = {getattr(h5py.h5d, name): layout for name, layout in LAYOUTS.items()}
    layout = layouts.get(plan.get_layout(), "unknown")
    external = plan.get_external_count() > 0
    stored = item.id.get_storage_size()  # 0 for values that were never written, which have no offset
    offset = item.id.get_offset() if stored and layout == "contiguous" and not external else None
    marked = item.attrs.get("dtype") if "dtype" in item.attrs else None
    return {
        "path": path, "shape": item.shape, "dtype": dtype.str, "type": str(dtype)[:80], "layout": layout,
        "external": external, "stored": stored,
        "offset": offset if offset is not None and _is_plain(item) else None,
        "rows": item.chunks[0] if item.chunks else 1,
        "unknown_filters": list(_unknown_filters(plan)),
        "sources": sorted({source.file_name for source in item.virtual_sources()}) if item.is_virtual else [],
        "bfloat16": marked in ("bfloat16", b"bfloat16"),
    }  # fmt: skip


def _is_plain(item: Any) -> bool:
    """Whether values are stored in the file as in memory."""
    import h5py

    try:
        return bool(item.id.get_type().equal(h5py.h5t.py_create(item.dtype, logical=True)))
    except TypeError:
        return False


def _unknown_filters(plan: Any) -> Iterator[tuple[int, str]]:
    """Number and name of each filter that is not installed."""
    import h5py

    for number in range(plan.get_nfilters()):
        code, _, _, name = plan.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            yield code, name.decode(errors="replace")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, (OSError, ValueError)) and text else f"{type(error).__name__}: {text}"


def _limit(seconds: float) -> None:
    """Have the system kill the process after `seconds` more of CPU time; 0 removes the limit."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_PROF, seconds)


def main(requests: IO[bytes], output: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    server = Server(requests)
    while line := requests.readline():
        request = json.loads(line)
        _limit(request["seconds"])
        header, values = server.respond(request)
        text = json.dumps(header).encode()
        _limit(0)
        output.write(SIZES.pack(len(text), len(values)) + text)
        output.write(values)
        output.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process, which ends this one
    main(sys.stdin.buffer, sys.stdout.buffer)
