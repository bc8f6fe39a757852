"""Record the average precisions that pycocotools computes.

.venv-peers/bin/python -m tests.peers.record_coco [--output DIRECTORY]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.peers import coco
from tests.peers.recordings import RECORDED, save_answers


def main() -> None:
    """Write the answers."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers.record_coco", description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORDED, help="write to this folder [the repository's answers]")
    print(save_answers(parser.parse_args().output, "coco", coco.record()))


if __name__ == "__main__":
    main()
