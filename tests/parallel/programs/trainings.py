"""Runs trainings one after another: a JSON file lists the arguments of each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import netspec
from netspec.errors import NetspecError
from netspec.parallel import join

for one in json.loads(Path(sys.argv[1]).read_text()):
    try:
        netspec.train(one.pop("spec"), **one)
    except NetspecError as error:
        if join().is_first:
            print(json.dumps({"run": one["run_dir"], "error": error.render()}))
