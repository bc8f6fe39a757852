"""Reads damaged files, one after another, in a process with limits of memory and time.

`python -m tests.fuzz.worker SEED` takes lines `[reader, first, count]` in JSON, and prints two lines for each file: its
number before it is read, and the outcome afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tests.fuzz.mutations import Damaged, damaged
from tests.fuzz.readers import READERS, Reader, WrongContent

SECONDS = 10
"""Processor time for one file. Most take some milliseconds."""
MEMORY = 2 * 2**30
"""Address space that the process may use in addition to that after all imports."""


class TooSlow(BaseException):
    """Not an `Exception`, so that no reader catches it."""


def _late(*_: object) -> NoReturn:
    raise TooSlow


def originals_in(folder: Path, reader: Reader) -> dict[str, bytes]:
    """The files of a reader that may be damaged."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob(reader.damage))}


def damaged_file(reader: str, originals: dict[str, bytes], seed: int, number: int) -> tuple[str, Damaged]:
    """Name and content of the damaged file of a run, which depend only on the reader, the seed and the number."""
    random = np.random.default_rng([seed, number, *reader.encode()])
    name = [*originals][int(random.integers(len(originals)))]
    file = damaged(originals[name], random)
    return name, replace(file, content=READERS[reader].seal(file.content))


def digest(content: Any) -> str:
    """A hash of what a reader returns: of arrays their types, shapes and bits."""
    result = hashlib.sha256()
    _add(result, content)
    return result.hexdigest()


def _add(result: Any, content: Any) -> None:
    if isinstance(content, Mapping):
        _add(result, sorted(content.items()))
    elif isinstance(content, (list, tuple)):
        result.update(f"{len(content)} items".encode())
        for item in content:
            _add(result, item)
    elif is_dataclass(content):
        _add(result, vars(content))
    elif isinstance(content, np.ndarray) and content.dtype != object:
        result.update(f"{content.dtype} {content.shape}".encode() + np.ascontiguousarray(content).tobytes())
    else:
        result.update(repr(content).encode())


def outcomes(reader: Reader, name: str, numbers: range, seed: int) -> Iterator[dict[str, Any]]:
    """The outcome for each file: accepted, refused with netspec's own error, or a failure."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        reader.make(folder)
        intact = None if reader.refuses else digest(reader.read(folder))
        originals = originals_in(folder, reader)
        for number in numbers:
            file, damage = damaged_file(name, originals, seed, number)
            yield {"number": number, "state": "begun"}
            (folder / file).unlink()  # a library may still have the one before open
            (folder / file).write_bytes(damage.content)
            start = time.monotonic()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    protected = intact if reader.protected and not damage.resealed else None
                    state, message = _outcome(reader, folder, protected)
            except TooSlow:
                state, message = "hang", f"took more than {SECONDS} seconds of CPU time"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            seconds = round(time.monotonic() - start, 3)
            yield {"number": number, "state": state, "what": message[:300], "file": file, "seconds": seconds}
            (folder / file).unlink()
            (folder / file).write_bytes(originals[file])


def _outcome(reader: Reader, folder: Path, protected: str | None) -> tuple[str, str]:
    """The state of a damaged file, and a message. `protected`: the only content with which it may be accepted."""
    from netspec.errors import NetspecError

    try:
        content = digest(reader.read(folder))
        if protected is not None and content != protected:
            return "wrong", "the checksum does not hold, and the content is another"
        if content != digest(reader.read(folder)):
            return "wrong", "the content is another when it is read again"
    except NetspecError as error:
        if any(all(path.name not in problem.render() for path in _files(folder)) for problem in error.problems):
            return "unlocated", str(error)
        return ("memory" if _is_out_of_memory(error) else "refused"), str(error)
    except WrongContent as error:
        return "wrong", str(error)
    except MemoryError as error:
        return "memory", f"{type(error).__name__}: {error}"
    except TooSlow:
        raise
    except BaseException as error:  # a panic in Rust is not an `Exception`
        return "traceback", f"{type(error).__name__}: {error}"
    return "accepted", ""


def _files(folder: Path) -> list[Path]:
    """All files that a reader may name, and its spec, which need not exist."""
    return [folder, *folder.iterdir(), folder / "train.yaml", folder / "net.yaml"]


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error comes from an allocation that failed."""
    return error is not None and (
        isinstance(error, MemoryError) or _is_out_of_memory(error.__cause__ or error.__context__)
    )


def main(seed: int) -> None:
    """Answer requests until there are no more."""
    import netspec.data
    import netspec.training.inference.model  # noqa: F401  # import everything before memory is limited

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGPROF, _late)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # libraries may print about a damaged file
        for line in sys.stdin:
            name, first, count = json.loads(line)
            for outcome in outcomes(READERS[name], name, range(first, first + count), seed):
                print(json.dumps(outcome), file=answers, flush=True)
            print(json.dumps({"state": "done"}), file=answers, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
