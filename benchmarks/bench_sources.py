"""Measures how fast tables and records are read: opening, shuffled epochs, and the library of the format alone.

A table of 200,000 rows (six numbers, a category, a label) as CSV and as Parquet, held in memory and read in parts;
20,000 images of 32 × 32 as LMDB, raw and as PNG, as compressed HDF5 and as `.npy`. Each in its own process; all values
are CPU time, including that of processes which a source starts. The library alone is pyarrow to NumPy's columns,
or lmdb's cursor over all values, unparsed.

python -m benchmarks.bench_sources [--quick] [--json] [--folder build/bench/sources]
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.alternate import ROOT, BenchmarkError
from benchmarks.loaders import processor_seconds
from benchmarks.results import Results

ROWS, IMAGES, BATCH = 200_000, 20_000, 256
NUMBERS = "abcdef"
WINDOW = {"window": 20_000}
TABLE = {
    "columns": {**dict.fromkeys(NUMBERS, "numeric"), "town": "categorical", "label": "numeric"}, "label": "label",
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "csv": ("set.csv", {"source": "csv", "header": True, "shuffle": True, **TABLE}),
    "csv in parts": ("set.csv", {"source": "csv", "header": True, "cache": 0, "shuffle": WINDOW, **TABLE}),
    "parquet": ("set.parquet", {"source": "parquet", "shuffle": True, **TABLE}),
    "parquet in parts": ("set.parquet", {"source": "parquet", "cache": 0, "shuffle": WINDOW, **TABLE}),
    "lmdb": ("set.raw.lmdb", {"source": "lmdb", "shuffle": True}),
    "lmdb of PNG": ("set.png.lmdb", {"source": "lmdb", "shuffle": True}),
    "hdf5 of gzip": ("set.h5", {"source": "hdf5", "shuffle": {"window": 4096}}),
    "npy": ("set.npy", {"source": "npy", "shuffle": True}),
}
"""The file of each case, and the split that reads it."""


def make(folder: Path) -> None:
    """Write all files, unless they exist."""
    if (folder / "done").exists():
        return
    import h5py
    import lmdb
    import pyarrow as pa
    from PIL import Image
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {name: random.normal(size=ROWS).round(4) for name in NUMBERS}
    towns, labels = random.integers(0, 50, ROWS), random.integers(0, 5, ROWS)
    columns |= {"town": [f"t{town}" for town in towns.tolist()], "label": labels}
    parquet.write_table(pa.table(columns), folder / "set.parquet", row_group_size=10_000)
    rows = zip(
        *(column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()), strict=True
    )
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    (folder / "set.csv").write_text("\n".join(lines))
    images = random.integers(0, 256, (IMAGES, 3, 32, 32), np.uint8)
    classes = np.arange(IMAGES) % 10
    np.save(folder / "set.npy", images)
    np.save(folder / "labels.npy", classes)
    with h5py.File(folder / "set.h5", "w") as file:
        file.create_dataset("image", data=images, chunks=(64, 3, 32, 32), compression="gzip")
        file["label"] = classes
    for name in ("raw", "png"):
        with lmdb.open(str(folder / f"set.{name}.lmdb"), map_size=2**30) as base, base.begin(write=True) as transaction:
            for index in range(IMAGES):
                data, head = images[index].tobytes(), b"\x08\x03\x10\x20\x18\x20"
                if name == "png":
                    written = io.BytesIO()
                    Image.fromarray(images[index].transpose(1, 2, 0)).save(written, "PNG")
                    data, head = written.getvalue(), b""
                tail = b"\x28" + _varint(int(classes[index])) + b"\x38\x01" * (name == "png")
                transaction.put(f"{index:08}".encode(), head + b"\x22" + _varint(len(data)) + data + tail)
    (folder / "done").touch()


def _varint(value: int) -> bytes:
    """Return a number in the encoding of protocol buffers."""
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])


def measured(case: str, folder: Path) -> dict[str, float]:
    """Return samples per second of CPU time: opening, the second epoch, and the library alone."""
    import netspec.data  # noqa: F401  # the sources are found through it
    from netspec.data.loader import open_loader
    from netspec.schema.specs.data import SOURCES

    name, fields = CASES[case]
    location = {"path": str(folder / name)}
    if name == "set.npy":
        location = {"files": {"image": str(folder / name), "label": str(folder / "labels.npy")}}  # type: ignore[dict-item]  # a field that is a mapping
    began = processor_seconds()
    with open_loader(SOURCES.parse({**fields, **location, "batch_size": BATCH}), seed=1) as loader:
        speeds = {"open": loader.samples / (processor_seconds() - began)}
        for batch in loader:
            if batch.epoch == 1 and batch.position == 0:
                began = processor_seconds()
            if batch.epoch == 2:
                break
        speeds["epoch"] = loader.samples / (processor_seconds() - began)
        began = processor_seconds()
        if library(folder / name):
            speeds["library"] = loader.samples / (processor_seconds() - began)
    return speeds


def library(path: Path) -> bool:
    """Read all of a file with the library of its format; return False if there is none to compare with."""
    if path.suffix in (".csv", ".parquet"):
        from pyarrow import csv, parquet

        table = csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path)
        for column in table.columns:
            column.to_numpy()
    elif path.suffix == ".lmdb":
        import lmdb

        with lmdb.open(str(path), readonly=True, lock=False) as base, base.begin(buffers=True) as transaction:
            for _, value in transaction.cursor():
                bytes(value)
    else:
        return False
    return True


def main() -> int:
    """Run all cases, each in its own process."""
    parser = report.parser(__doc__ or "")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "bench" / "sources", help="write the files to this folder"
    )
    options = report.parsed(parser)
    report.require("pyarrow", "lmdb")
    make(options.folder)
    results = Results("sources", options, "pyarrow", "lmdb", "h5py", "numpy")
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.bench_sources", "--measure", case, str(options.folder)]
        runs = []
        for _ in range(1 if options.quick else 3):
            answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if answer.returncode:
                results.fail(BenchmarkError(answer.stderr.strip().rpartition("\n")[2]), case=case)
                break
            runs.append(json.loads(answer.stdout))
        else:
            results.add({"case": case, **{name: median(run[name] for run in runs) for name in runs[0]}})
    return results.end()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        print(json.dumps(measured(sys.argv[2], Path(sys.argv[3]))))
        sys.exit(0)
    sys.exit(report.run(main))
