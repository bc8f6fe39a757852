"""What a benchmark found, as JSON that is written after every part: a later failure loses nothing of it."""

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
    """The results of one benchmark, kept in `--output` as they come in."""

    def __init__(self, benchmark: str, options: argparse.Namespace, *packages: str) -> None:
        self._options = options
        told = [one for one in sys.argv[1:] if one not in ("--output", options.output)]
        command = shlex.join(["python", "-m", f"benchmarks.bench_{benchmark}", *told])
        self.data: dict[str, Any] = {
            "benchmark": benchmark,
            "command": command,
            "machine": report.machine(*packages),
            "threads": options.threads,
            "passive": options.passive,
            "found": [],
            "failed": [],
        }

    def add(self, found: dict[str, Any]) -> None:
        """Keep one more result; what failed in it is among the failures too."""
        self.data["found"].append(found)
        where = {name: found[name] for name in ("net", "batch_size") if name in found}
        self.data["failed"] += [{**where, "subject": name, "why": why} for name, why in found.get("failed", {}).items()]
        self._write()

    def fail(self, why: BenchmarkError, **where: Any) -> None:
        """Keep that a part came to nothing, and go on."""
        report.say(f"failed: {' '.join(map(str, where.values()))}: {why}")
        self.data["failed"].append({**where, "why": str(why)})
        self._write()

    def end(self) -> int:
        """Print all as a table or as JSON; the exit status is 1 where anything failed."""
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
