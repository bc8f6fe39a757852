"""Results of a benchmark as JSON, written after every part, so that a later failure loses nothing."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks import render, report
from benchmarks.alternate import BenchmarkError


class Results:
    """The results of one benchmark, written to `--output` as they arrive."""

    def __init__(self, benchmark: str, options: argparse.Namespace, *packages: str) -> None:
        self._options = options
        arguments = [argument for argument in sys.argv[1:] if argument not in ("--output", options.output)]
        command = shlex.join(["python", "-m", f"benchmarks.bench_{benchmark}", *arguments])
        self.data: dict[str, Any] = {
            "benchmark": benchmark,
            "command": command,
            "machine": report.machine(*packages),
            "threads": options.threads,
            "passive": options.passive,
            "found": [],
            "failed": [],
        }

    def add(self, result: dict[str, Any]) -> None:
        """Add a result; its failures are also added to the list of failures."""
        self.data["found"].append(result)
        where = {name: result[name] for name in ("net", "batch_size") if name in result}
        self.data["failed"] += [
            {**where, "subject": name, "why": why} for name, why in result.get("failed", {}).items()
        ]
        self._write()

    def fail(self, why: BenchmarkError, **where: Any) -> None:
        """Record that a part failed, and continue."""
        report.say(f"failed: {' '.join(map(str, where.values()))}: {why}")
        self.data["failed"].append({**where, "why": str(why)})
        self._write()

    def end(self) -> int:
        """Print all results as a table or as JSON; the exit status is 1 if anything failed."""
        self.data["machine"]["load_after"] = report.load()
        self._write()
        print(json.dumps(self.data, indent=2) if self._options.json else render.text(self.data))
        return 1 if self.data["failed"] or not self.data["found"] else 0

    def _write(self) -> None:
        if self._options.output is None:
            return
        path = Path(self._options.output)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(self.data, indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)
