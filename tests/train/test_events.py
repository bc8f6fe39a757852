"""The log of a run as files."""

from __future__ import annotations

import json
import os

from netspec.train.events import LogFiles


def test_the_log_takes_names_of_files_that_are_not_text(tmp_path):
    name = "image " + os.fsdecode(b"a-\xff.png")
    with LogFiles(tmp_path) as log:
        log({"event": "skipped", "split": "train", "epoch": 1, "samples": 1, "examples": [name]})
    (line,) = (tmp_path / "log.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["examples"] == [name]
    assert r"a-\udcff.png" in (tmp_path / "log.txt").read_text("utf-8")
