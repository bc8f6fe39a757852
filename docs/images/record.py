"""Record commands and their real output as the drawing in the README.

    python docs/images/record.py          # from the repository, with netspec installed

Runs each command in a temporary folder and writes `terminal.svg` next to this file.
"""

from __future__ import annotations

import os
import subprocess
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
WIDTH = 100
NET = """\
netspec: 1
inputs: {image: {shape: [1, 28, 28]}, label: {shape: [], dtype: int32}}
layers:
  - {type: Conv2D, filters: 20, kernel_size: 5}
  - {type: MaxPooling2D, poolsize: 2}
  - {type: Flatten}
  - {name: logits, type: Dense, units: 10}
losses: [{type: SparseCategoricalCrossentropy, from: [logit, label]}]
"""
COMMANDS = (
    "netspec check broken.yaml",
    "netspec zoo copy lenet_mnist my_net",
    "netspec train my_net/train.yaml train.max_epochs=1 --run-dir runs/first",
    "netspec export runs/first --output lenet.onnx",
)
LONGEST = 14
"""Lines of output to keep of a command; the middle of a longer one is left out."""


def main() -> None:
    """Write the recording."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    with TemporaryDirectory() as folder:
        Path(folder, "broken.yaml").write_text(NET, encoding="utf-8")
        environment = {**os.environ, "COLUMNS": str(WIDTH)}
        for command in COMMANDS:
            done = subprocess.run(
                command.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            lines = (done.stderr + done.stdout).rstrip().splitlines()
            if len(lines) > LONGEST:
                lines = [*lines[: LONGEST // 2], "…", *lines[-LONGEST // 2 :]]
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text("\n".join(lines) + "\n"))
    console.save_svg(str(HERE / "terminal.svg"), title="netspec", clear=True)


if __name__ == "__main__":
    main()
