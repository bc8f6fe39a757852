"""The layout of netspec's own files (docs/formats.md): the text block before the HDF5 part, and the names within it.

The first 512 bytes are an HDF5 user block that says in plain text what the file is and what the rest must add up to.
So a file is known by `head -3`, and libhdf5 never sees a damaged one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Kind = Literal["weights", "checkpoint"]

BLOCK_BYTES = 512
VERSION = 1
MAGIC = b"netspec "
MANIFEST = "manifest"
ARRAYS = "arrays"
DTYPES = (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"
)  # fmt: skip

_BLOCK = re.compile(
    rb"netspec (?P<kind>[a-z]+) (?P<version>[0-9]{1,9})\nsize (?P<size>[0-9]{1,18})\nsha256 (?P<sha256>[0-9a-f]{64})\n"
    rb"(?:step (?P<step>[0-9]{1,18})\n)?\n*\Z"
)


@dataclass(frozen=True)
class Block:
    """What the text block says: the kind of file, its version, its size in bytes, the checksum of all after it."""

    kind: str
    version: int
    size: int
    sha256: str
    step: int | None = None

    def render(self) -> bytes:
        """The block as bytes, filled up with line feeds."""
        lines = [f"netspec {self.kind} {self.version}", f"size {self.size}", f"sha256 {self.sha256}"]
        if self.step is not None:
            lines.append(f"step {self.step}")
        return "".join(line + "\n" for line in lines).encode().ljust(BLOCK_BYTES, b"\n")

    @classmethod
    def parse(cls, head: bytes) -> Block | None:
        """The block at the beginning of a file; None where there is none, or where a byte of it is wrong."""
        found = _BLOCK.match(head[:BLOCK_BYTES])
        if found is None or len(head) < BLOCK_BYTES:
            return None
        step = found["step"]
        block = cls(
            found["kind"].decode(), int(found["version"]), int(found["size"]), found["sha256"].decode(),
            None if step is None else int(step),
        )  # fmt: skip
        return block if block.render() == head[:BLOCK_BYTES] else None


def dataset_path(name: str, names: Collection[str]) -> str:
    """Where the array `name` lies below `/arrays`, as one of `names` in the file.

    It is the name itself, `/` making groups. HDF5 cannot hold all names so (`a/./b`, or `a` beside `a/b`): these become
    one link with `%`, `/` and `.` escaped as `%25`, `%2F` and `%2E`.
    """
    parts = name.split("/")
    plain = all(part not in ("", ".") for part in parts) and "%" not in name
    nested = any("/".join(parts[:count]) in names for count in range(1, len(parts)))
    if plain and not nested:
        return name
    return name.replace("%", "%25").replace("/", "%2F").replace(".", "%2E")
