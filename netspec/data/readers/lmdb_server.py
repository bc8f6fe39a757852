"""Reads an LMDB for another process: the library maps the file, and accessing a truncated part ends the process.

Run as a script with the path; it imports nothing of netspec, so that it starts in about 50 ms. It writes the result of
opening the file, then answers requests: a count and that many key indices; for each key the size of its value (-1 if it
is gone) and the value. Integers have 8 bytes, little-endian. The process ends when its input does.
"""

from __future__ import annotations

import signal
import sys
from array import array
from itertools import islice
from pathlib import Path
from typing import IO, Any

OPENED, FAILED = 0, 1
GONE = -1
SECONDS = 10.0
"""Seconds of CPU time for opening the LMDB or answering; large files and many values get more."""
BYTES_A_SECOND = 2**24


def _words(*numbers: int) -> bytes:
    packed = array("q", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _numbers(data: bytes) -> array[int]:
    numbers = array("q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _fail(output: IO[bytes], kind: str, text: str) -> None:
    message = f"{kind}\n{text}".encode()
    output.write(_words(FAILED, len(message)) + message)
    output.flush()


def _open(folder: Path, output: IO[bytes]) -> tuple[Any, list[bytes]] | None:
    """Open the environment and read its keys; None if that failed, which was reported."""
    import lmdb

    data = folder / "data.mdb" if folder.is_dir() else folder
    try:
        environment: Any = lmdb.open(
            str(folder), readonly=True, lock=False, subdir=folder.is_dir(), readahead=False, max_dbs=0
        )
    except lmdb.Error as error:
        _fail(output, "no lmdb", str(error))
        return None
    facts = environment.info(), environment.stat()
    needed, size = (facts[0]["last_pgno"] + 1) * facts[1]["psize"], data.stat().st_size
    if size < needed:
        _fail(output, "short", f"{needed} {size}")
        return None
    try:
        with environment.begin() as transaction:
            entries = transaction.cursor().iternext(keys=True, values=False)
            keys = list(islice(entries, facts[1]["entries"] + 1))  # pages that form a cycle have endless keys
        if len(keys) > facts[1]["entries"]:
            raise lmdb.CorruptedError(f"more keys than the {facts[1]['entries']:,} that its header states")
    except lmdb.Error as error:
        _fail(output, "damaged", str(error))
        return None
    output.write(_words(OPENED, len(keys), *map(len, keys)))
    output.write(b"".join(keys))
    output.flush()
    return environment, keys


def _value(transaction: Any, key: bytes) -> bytes | None:
    import lmdb

    try:
        value: bytes | None = transaction.get(key)
    except lmdb.Error:  # damage on the path to the value
        return None
    return value


def _limit(seconds: float) -> None:
    """Let the system kill the process after `seconds` more of CPU time; 0 removes the limit."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_PROF, seconds)


def main(folder: Path, requests: IO[bytes], output: IO[bytes]) -> None:
    """Open the LMDB and answer requests until there are no more."""
    data = folder / "data.mdb" if folder.is_dir() else folder
    _limit(SECONDS + (data.stat().st_size if data.is_file() else 0) / BYTES_A_SECOND)
    opened = _open(folder, output)
    _limit(0)
    if opened is None:
        return
    environment, keys = opened
    while head := requests.read(8):
        (count,) = _numbers(head)
        positions = _numbers(requests.read(8 * count))
        _limit(SECONDS + count)
        with environment.begin() as transaction:
            values = [_value(transaction, keys[index]) for index in positions]
        _limit(0)
        output.write(_words(*(GONE if value is None else len(value) for value in values)))
        for value in values:
            output.write(value or b"")
        output.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the requesting process, which ends this one
    main(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
