"""Damage files at random for every reader of data and models, and count the outcomes.

    python -m tests.fuzz --count 1000
    python -m tests.fuzz --reader "data npz" --seed 3 --only 17 --keep /tmp/damaged

A file must be accepted, or refused with an error of netspec's own. The exit status is 1 if any ended in a traceback, a
crash or a hang; these are printed with their numbers.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fuzz.readers import READERS
from tests.fuzz.runner import STATES, Fuzzer
from tests.fuzz.worker import damaged_file, originals_in


def _keep(reader: str, seed: int, number: int, folder: Path) -> None:
    """Write the files of one run into a folder."""
    with tempfile.TemporaryDirectory() as name:
        READERS[reader].make(Path(name))
        file, content = damaged_file(reader, originals_in(Path(name), READERS[reader]), seed, number)
        (Path(name) / file).write_bytes(content)
        shutil.copytree(name, folder, dirs_exist_ok=True)
    print(f"{folder / file} is the damaged file")


def main() -> int:
    """Print a row for each reader, then the failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=100, help="read this many damaged files per reader [100]")
    parser.add_argument("--seed", type=int, default=0, help="seed the random damage [0]")
    parser.add_argument(
        "--reader", action="append", choices=list(READERS), help="use only this one; can be repeated [all]"
    )
    parser.add_argument("--only", type=int, help="read only the file with this number")
    parser.add_argument("--keep", type=Path, help="with --reader and --only: write the files into this folder")
    options = parser.parse_args()
    names = options.reader or list(READERS)
    first, count = (0, options.count) if options.only is None else (options.only, 1)
    if options.keep is not None and options.only is not None:
        _keep(names[0], options.seed, options.only, options.keep)
    failures = []
    width = max(map(len, READERS))
    print(f"{'reader':{width}} {'files':>7} " + " ".join(f"{state:>10}" for state in STATES))
    with Fuzzer(options.seed) as fuzzer:
        for name in names:
            tally = fuzzer.run(name, first, count)
            counts = " ".join(f"{tally.counts[state]:>10}" for state in STATES)
            print(f"{name:{width}} {sum(tally.counts.values()):>7} {counts}", flush=True)
            failures += tally.failures
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
