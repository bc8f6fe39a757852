"""The directory of a zip archive, which has no checksum."""

from __future__ import annotations

import os
import struct
from zipfile import BadZipFile, ZipFile

END = struct.Struct("<4s6xH10x")
"""The end of an archive without its comment: signature, and number of members."""
SIGNATURE = b"PK\x05\x06"
IN_ZIP64 = 0xFFFF
"""The number of members of archives whose number is in another structure."""


def check_number_of_members(archive: ZipFile) -> None:
    """Raise `BadZipFile` if the directory is shorter than the end says: a damaged length hides members after it."""
    assert archive.fp is not None
    archive.fp.seek(-END.size - len(archive.comment), os.SEEK_END)
    signature, declared = END.unpack(archive.fp.read(END.size))
    found = len(archive.infolist())
    if signature == SIGNATURE and declared not in (found, IN_ZIP64):
        raise BadZipFile(f"its directory lists {found} members instead of {declared}")
