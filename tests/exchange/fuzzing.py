"""Files of every format, spoiled at random, each imported in a process of its own that may not grow or take long.

`python -m tests.exchange.fuzzing FOLDER` imports every file of a folder and prints a line of JSON for each.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 20
"""One file may take the processor this long. Most take some milliseconds."""
WAITING = 10
"""How many times as long it may take by the clock: the machine may be busy."""
MEMORY = 3 * 2**30
"""Address space that the process may have beyond what it has once everything is imported."""


def spoiled(data: bytes, random: np.random.Generator) -> bytes:
    """The file with one to four changes; an archive is changed in its members as often as outside of them."""
    if data.startswith(b"PK") and random.random() < 0.5:
        return _in_a_member(data, random)
    for _ in range(int(random.integers(1, 5))):
        if data:
            change = _CHANGES[int(random.integers(len(_CHANGES)))]
            data = change(data, int(random.integers(len(data))), random)
    return data


def _in_a_member(data: bytes, random: np.random.Generator) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as before, zipfile.ZipFile(made, "w") as after:
        members = before.infolist()
        chosen = int(random.integers(len(members)))
        for index, member in enumerate(members):
            content = before.read(member)
            after.writestr(member.filename, spoiled(content, random) if index == chosen else content)
    return made.getvalue()


def _flip(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << int(random.integers(8)))]) + data[at + 1 :]


def _byte(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + bytes([int(random.choice([0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x7B, 0x2D]))]) + data[at + 1 :]


def _cut(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at]


def _remove(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + data[at + int(random.integers(1, 64)) :]


def _repeat(data: bytes, at: int, random: np.random.Generator) -> bytes:
    part = data[at : at + int(random.integers(1, 256))]
    return data[:at] + part * int(random.integers(2, 9)) + data[at:]


def _huge(data: bytes, at: int, random: np.random.Generator) -> bytes:
    number = (2**63 - 1, 2**32 - 1, 2**31, 2**40)[int(random.integers(4))]
    width = (4, 8)[int(random.integers(2))]
    return data[:at] + number.to_bytes(8, "little")[:width] + data[at + width :]


def _varint(data: bytes, at: int, random: np.random.Generator) -> bytes:
    return data[:at] + b"\xff" * int(random.integers(1, 10)) + b"\x01" + data[at + 1 :]


def _digits(data: bytes, at: int, random: np.random.Generator) -> bytes:
    """A number in a text becomes another one."""
    digits = [place for place, byte in enumerate(data[:100_000]) if 0x30 <= byte <= 0x39]
    if not digits:
        return _flip(data, at, random)
    place = digits[int(random.integers(len(digits)))]
    numbers = (b"0", b"-1", b"99999999999", b"1e999", b"true", b'"x"', b"[]")
    text = numbers[int(random.integers(len(numbers)))]
    return data[:place] + text + data[place + 1 :]


def _swap(data: bytes, at: int, random: np.random.Generator) -> bytes:
    other, size = int(random.integers(len(data))), int(random.integers(1, 32))
    one, two = sorted((at, other))
    if one + size > two:
        return _flip(data, at, random)
    return data[:one] + data[two : two + size] + data[one + size : two] + data[one : one + size] + data[two + size :]


_CHANGES: tuple[Callable[[bytes, int, np.random.Generator], bytes], ...] = (
    _flip, _byte, _cut, _remove, _repeat, _huge, _varint, _digits, _swap,
)  # fmt: skip


def _late(*_: object) -> None:
    raise TimeoutError(f"took more than {SECONDS} seconds")


def import_all(folder: Path) -> Iterator[dict[str, Any]]:
    """What became of each file: imported, refused in words, or something that must not be."""
    from netspec.errors import NetspecError
    from netspec.exchange.importing import import_model
    from netspec.schema.load import load_net
    from netspec.schema.reader import parse_yaml
    from netspec.train.model import load

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    for late in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(late, _late)
    for path in sorted(folder.iterdir()):
        start = time.monotonic()
        print(json.dumps({"file": path.name, "state": "begun"}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(SECONDS * WAITING)
        try:
            found = import_model(path)
            load(load_net(parse_yaml(found.net, "the net")))
            state, what = "imported", ""
        except NetspecError as error:
            state, what = "refused", str(error)
        except BaseException as error:
            state, what = "broken", f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        yield {"file": path.name, "state": state, "what": what[:300], "seconds": round(time.monotonic() - start, 2)}


if __name__ == "__main__":
    for result in import_all(Path(sys.argv[1])):
        print(json.dumps(result), flush=True)
