"""Reads damaged files, one after another, in a process with limits of memory and time.

`python -m tests.fuzz.worker SEED` takes lines `[reader, first, count]` in JSON, and prints two lines for each file: its
number before it is read, and the outcome afterwards.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tests.fuzz.mutations import damaged
from tests.fuzz.readers import READERS, Reader

SECONDS = 20
"""Processor time for one file. Most take some milliseconds."""
MEMORY = 3 * 2**30
"""Address space that the process may use in addition to that after all imports."""


class TooSlow(BaseException):
    """Not an `Exception`, so that no reader catches it."""


def _late(*_: object) -> NoReturn:
    raise TooSlow


def originals_in(folder: Path, reader: Reader) -> dict[str, bytes]:
    """The files of a reader that may be damaged."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob(reader.damage))}


def damaged_file(reader: str, originals: dict[str, bytes], seed: int, number: int) -> tuple[str, bytes]:
    """Name and bytes of the damaged file of a run, which depend only on the reader, the seed and the number."""
    random = np.random.default_rng([seed, number, *reader.encode()])
    name = [*originals][int(random.integers(len(originals)))]
    return name, READERS[reader].seal(damaged(originals[name], random))


def outcomes(reader: Reader, name: str, numbers: range, seed: int) -> Iterator[dict[str, Any]]:
    """The outcome for each file: accepted, refused with netspec's own error, or a failure."""
    from netspec.errors import NetspecError

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        reader.make(folder)
        with suppress(NetspecError) if reader.refuses else nullcontext():
            reader.read(folder)
        originals = originals_in(folder, reader)
        for number in numbers:
            file, content = damaged_file(name, originals, seed, number)
            yield {"number": number, "state": "begun"}
            (folder / file).unlink()  # a library may still have the one before open
            (folder / file).write_bytes(content)
            start, message = time.monotonic(), ""
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    reader.read(folder)
                state = "accepted"
            except NetspecError as error:
                state, message = "refused", str(error)
            except TooSlow:
                state, message = "hang", f"took more than {SECONDS} seconds of CPU time"
            except BaseException as error:
                state, message = "traceback", f"{type(error).__name__}: {error}"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            seconds = round(time.monotonic() - start, 3)
            yield {"number": number, "state": state, "what": message[:300], "file": file, "seconds": seconds}
            (folder / file).unlink()
            (folder / file).write_bytes(originals[file])


def main(seed: int) -> None:
    """Answer requests until there are no more."""
    import netspec.data
    import netspec.training.model  # noqa: F401  # import everything before memory is limited

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGPROF, _late)
    for line in sys.stdin:
        name, first, count = json.loads(line)
        for outcome in outcomes(READERS[name], name, range(first, first + count), seed):
            print(json.dumps(outcome), flush=True)
        print(json.dumps({"state": "done"}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
