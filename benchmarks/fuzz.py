"""Damages files at random for every reader of models, data and specs, and counts the outcomes.

A damaged file is accepted, or refused with a message that names it. Everything else is a failure: a traceback, a crash
of the process, more than 10 seconds of processor time or 2 GB of memory, a message without the file, and a wrong
acceptance. An acceptance is wrong if the checksum of a format does not hold and the content is another; if a second
reading gives another content; if arrays do not have the shapes that the net or the source declares; if onnxruntime
reads the same ONNX model and computes other results; or if the resolved spec loads as another one. Accepted models are
built and run, accepted trainings built.

A file depends only on its reader, the seed and its number, so `--first` continues, and a failure prints the command
that repeats it.

python -m benchmarks.fuzz [--files 10000] [--only onnx] [--seed 0] [--first 0] [--keep FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.alternate import BenchmarkError
from tests.fuzz.readers import READERS
from tests.fuzz.runner import STATES, Fuzzer
from tests.fuzz.worker import damaged_file, originals_in


def keep(reader: str, seed: int, number: int, folder: Path) -> Path:
    """Write the files of a reader into a folder, one of them damaged; return the path of that one."""
    with tempfile.TemporaryDirectory() as name:
        READERS[reader].make(Path(name))
        file, damage = damaged_file(reader, originals_in(Path(name), READERS[reader]), seed, number)
        (Path(name) / file).write_bytes(damage.content)
        shutil.copytree(name, folder, dirs_exist_ok=True)
    return folder / file


def chosen(parts: list[str]) -> list[str]:
    """Return the readers with these names or, for a part that is not a name, whose names contain it; by default all."""
    names = [
        name for name in READERS
        if not parts or name in parts or any(part in name for part in parts if part not in READERS)
    ]  # fmt: skip
    if not names:
        raise BenchmarkError(f"no such reader: {', '.join(parts)} (there are {', '.join(READERS)})")
    return names


def main() -> int:
    """Print a row for each reader, then the failures; the exit status is 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="read this many damaged files per reader [10000]")
    parser.add_argument("--first", type=int, default=0, help="number of the first file [0]")
    parser.add_argument("--seed", type=int, default=0, help="draw the damage from this seed [0]")
    parser.add_argument(
        "--only", action="append", default=[], help="use only readers whose names contain this; can be repeated [all]"
    )
    parser.add_argument("--keep", type=Path, help="write the files of the first run into this folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    names = chosen(options.only)
    if options.keep is not None:
        print(f"{keep(names[0], options.seed, options.first, options.keep)} is the damaged file", file=sys.stderr)
    width, results, failures = max(map(len, names)), [], []
    if not options.json:
        print(f"{'reader':{width}} {'files':>7} " + " ".join(f"{state:>9}" for state in STATES))
    with Fuzzer(options.seed) as fuzzer:
        for name in names:
            tally = fuzzer.run(name, options.first, options.files)
            counts: dict[str, Any] = {state: tally.counts[state] for state in STATES}
            results.append({"reader": name, "files": sum(counts.values()), **counts})
            failures += tally.failures
            for failure in tally.failures:
                report.say(failure)
            if not options.json:
                row = " ".join(f"{count:>9}" for count in counts.values())
                print(f"{name:{width}} {sum(counts.values()):>7} {row}", flush=True)
    if options.json:
        print(json.dumps({"seed": options.seed, "readers": results, "failures": failures}, indent=2))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(report.run(main))
