"""Safetensors files: a length, a JSON header, and the data (github.com/huggingface/safetensors, format 1).

It is read without the library of the same name, which does not return bfloat16 as NumPy arrays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from io import BufferedReader
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError, Problem
from netspec.exchange.files import reading, sniff, write_atomically

WHAT = "a safetensors file (.safetensors)"
MAX_HEADER = 100_000_000
"""The limit that the format's own library sets."""
ALIGNMENT = 8
METADATA = "__metadata__"
_OBJECT = re.compile(rb'\{\s*["}]')

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1",
    "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def is_safetensors(head: bytes, path: Path) -> bool:
    """Whether a file begins with the length of a header, and the header as a JSON object with names does."""
    return _OBJECT.match(head, 8) is not None and int.from_bytes(head[:8], "little") <= MAX_HEADER


def read_safetensors(path: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a file (bfloat16 as float32), and its metadata. Raises `InputError` with all problems."""
    with reading(path, WHAT) as (file, size):
        header, start = _header(path, file, size)
        metadata = header.pop(METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise InputError(f"{path} is damaged: its metadata is not text by name", expected=WHAT)
        end = start + max((_end(entry) for entry in header.values()), default=0)
        if end > size:
            raise InputError(
                f"{path} is damaged, or cut short", expected=f"{end:,} bytes, as its header states",
                got=f"{size:,} bytes", hint="copy or download the file again",
            )  # fmt: skip
        entries: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        problems: list[Problem] = []
        for name, entry in header.items():
            try:
                entries[name] = _array_entry(entry, size - start)
            except ValueError as error:
                problems.append(Problem(f"{path}: `{name}` {error}", hint="copy or download the file again"))
        problems = problems or _overlaps(path, entries)
        if problems:
            raise InputError(problems)
        return {name: _array(file, start, *offset) for name, offset in entries.items()}, metadata


def _header(path: str | Path, file: BufferedReader, size: int) -> tuple[dict[str, Any], int]:
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(MAX_HEADER, size - 8):
        description, hint = sniff(head)
        raise InputError(f"{path} is damaged, or not a safetensors file", expected=WHAT, got=description, hint=hint)

    def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(items)
        if len(members) < len(items):
            raise ValueError("a name occurs twice")
        return members

    try:
        header = json.loads(file.read(length), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: its header can't be read", expected=WHAT, got=str(error)) from error
    if not isinstance(header, dict):
        raise InputError(f"{path} is damaged: its header is not a mapping", expected=WHAT)
    return header, 8 + length


def _end(entry: Any) -> int:
    """Offset of the end of an array; 0 if its entry does not state it."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    last = offsets[-1] if isinstance(offsets, list) and offsets else 0
    return last if type(last) is int else 0


def _array_entry(entry: Any, room: int) -> tuple[str, tuple[int, ...], int, int]:
    """Element type, shape, first and last byte of an array. Raises `ValueError`."""

    def is_integers(numbers: Any) -> bool:
        return isinstance(numbers, list) and all(type(size) is int and size >= 0 for size in numbers)

    if not isinstance(entry, dict) or not is_integers(entry.get("shape")) or not is_integers(entry.get("data_offsets")):
        raise ValueError("has no shape, or no place in the file")
    dtype, shape, offsets = str(entry.get("dtype")), tuple(entry["shape"]), entry["data_offsets"]
    if dtype != "BF16" and dtype not in _DTYPES:
        raise ValueError(f"is of the type {dtype[:20]!r}, which is not read")
    width = 2 if dtype == "BF16" else int(_DTYPES[dtype][-1])
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= room or len(shape) > 32:
        raise ValueError(f"lies at {offsets} of {room:,} bytes")
    if prod(shape) * width != offsets[1] - offsets[0]:
        raise ValueError(f"has the shape {list(shape)} of {dtype} in {offsets[1] - offsets[0]:,} bytes")
    return dtype, shape, offsets[0], offsets[1]


def _overlaps(path: str | Path, entries: Mapping[str, tuple[str, tuple[int, ...], int, int]]) -> list[Problem]:
    """Problems of arrays that share bytes: with those, a small file could claim any amount of memory."""
    ordered = sorted((first, last, name) for name, (_, _, first, last) in entries.items() if last > first)
    return [
        Problem(f"{path}: `{name}` and `{other}` share bytes", hint="copy or download the file again")
        for (_, last, name), (first, _, other) in pairwise(ordered)
        if first < last
    ]


def _array(file: BufferedReader, start: int, dtype: str, shape: tuple[int, ...], first: int, last: int) -> NDArray[Any]:
    file.seek(start + first)
    data = bytearray(last - first)
    if file.readinto(data) < len(data):
        raise InputError(f"{file.name} changed while it was read", expected=WHAT)
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    array: NDArray[Any] = np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
    return array


def write_safetensors(path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays under their names, the largest elements first, as the format's own library does."""
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    little = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in plain.items()}
    order = sorted(little, key=lambda name: (-little[name].dtype.itemsize, name))
    header: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    offset = 0
    for name in order:
        array = little[name]
        end = offset + array.nbytes
        # 0-d arrays lose their shape in `ascontiguousarray`
        header[name] = {
            "dtype": _NAMES[array.dtype.str],
            "shape": list(arrays[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                file.write(little[name].tobytes())

    write_atomically(path, write)
