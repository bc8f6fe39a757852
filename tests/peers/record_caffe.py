"""Record OpenCV's results for files that netspec writes for Caffe.

    .venv-peers/bin/python -m tests.peers.record_caffe [--output DIRECTORY]

OpenCV reads prototxt and caffemodel independently of netspec; OpenCV 4 is the last version that does.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.peers.caffe_files import CaffeFile, caffe_files
from tests.peers.recordings import RECORDED, save_answers


def answered(caffe_file: CaffeFile, folder: Path) -> np.ndarray | str:
    """Return the output, or why OpenCV can't run the net."""
    cv2: Any = import_module("cv2")
    text, weights = folder / "model.prototxt", folder / "model.caffemodel"
    for path, content in zip((text, weights), caffe_file.files, strict=True):
        path.write_bytes(content)
    read = caffe_file.net.graph(1).inputs()
    try:
        model = cv2.dnn.readNetFromCaffe(str(text), str(weights))
        for name, array in caffe_file.inputs.items():
            if name in read:
                model.setInput(array.astype(np.float32), name)
        return np.asarray(model.forward("end"))
    except cv2.error as error:
        return " ".join(str(error).split("error: ")[-1].split())[:100]


def apart(caffe_file: CaffeFile, folder: Path) -> np.ndarray | str:
    """Do the same in a separate process, since OpenCV may crash."""
    fork = get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: sender.send(answered(caffe_file, folder)))
    process.start()
    sender.close()
    try:
        answer: np.ndarray | str = receiver.recv()
    except EOFError:
        answer = "it ends the process"
    process.join()
    return answer


def main() -> None:
    """Write `caffe_files`: the output of each net by the digest of its files, or why there is none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=RECORDED)
    output = parser.parse_args().output
    cv2 = import_module("cv2")
    recorded: dict[str, np.ndarray] = {}
    count = 0
    with TemporaryDirectory() as folder:
        for caffe_file in caffe_files():
            answer = apart(caffe_file, Path(folder))
            recorded[f"{caffe_file.digest}/{'unlike' if isinstance(answer, str) else 'end'}"] = np.asarray(answer)
            count += not isinstance(answer, str)
    print(f"{save_answers(output, 'caffe_files', recorded)}: {count} answers of OpenCV {cv2.__version__}")


if __name__ == "__main__":
    main()
