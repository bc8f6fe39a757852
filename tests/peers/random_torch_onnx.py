"""Compare random PyTorch models, imported from ONNX, with onnxruntime.

    python -m tests.peers.random_torch_onnx --count 20 --seed 1

Each model is exported by both of PyTorch's exporters, with a dynamic and with a fixed batch size. onnxruntime optimizes
each file at each of its levels, and quantizes the files with a fixed batch size. Every file is imported and compared
with onnxruntime's results for the exported file, or for the quantized one. Prints how many files agree, are refused
(with the reasons) and are wrong (with the model). Needs the packages in `tests/peers/requirements.txt`.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnxruntime import quantization

from netspec.errors import NetspecError
from netspec.exchange.formats.onnx.importing import read_model
from netspec.exchange.interface import ImportOptions
from netspec.exchange.lift.model import LiftedModel, lift_model
from netspec.schema.load import load_net
from tests.exchange.nets import Net
from tests.peers.random_torch_models import RandomModel, random_model

TOLERANCE = 2e-4
"""Largest difference, relative to the largest value or 1: sums in a different order, through up to ten layers."""
ROUNDED = 0.03
"""The same for quantized files: four of 127 steps, since sums in a different order may round to other integers."""
LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
NAMES = re.compile(r"`[^`]*`|\d[\d.e-]*|'[^']*'")
"""The parts that differ between messages of one kind."""


@dataclass
class Counts:
    """Outcomes by kind of file."""

    states: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    """onnxruntime's contrib operators in files that agree."""

    def add(self, kind: str, state: str) -> None:
        """Count a file."""
        self.states.setdefault(kind, Counter())[state] += 1

    def report(self) -> str:
        """A table of the outcomes, and the reasons of refusals."""
        columns = ("made", "agree", "refused", "wrong", "crashed")
        rows = [f"{'file':32}" + "".join(f"{name:>9}" for name in columns)]
        rows += [
            f"{kind:32}" + "".join(f"{self.states[kind][name]:>9}" for name in columns) for kind in sorted(self.states)
        ]
        lines = [f"{count:>5}  {reason}" for reason, count in self.reasons.most_common()]
        operator_counts = ", ".join(f"{name} {count}" for name, count in sorted(self.operators.items()))
        return "\n".join(
            [*rows, "", "refused:", *lines, "", f"onnxruntime's own operators in files that agree: {operator_counts}"]
        )


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discard output to the standard streams: PyTorch prints graphs that it cannot export from C++."""
    streams = [os.dup(stream) for stream in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nothing, stream)
        yield
    finally:
        for stream, copy in zip((1, 2), streams, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nothing)


def export(model: RandomModel, path: Path, dynamo: bool, open_batch: bool) -> None:
    """Write the model with one of PyTorch's exporters."""
    axes: dict[str, Any] = {}
    if open_batch:
        size = torch.export.Dim.DYNAMIC
        axes = {"dynamic_shapes": ({0: size},)} if dynamo else {"dynamic_axes": {"x": {0: "batch"}}}
    names = [f"y{index}" for index in range(model.results)]
    with warnings.catch_warnings(), silent():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (model.example,),
            str(path),
            input_names=["x"],
            output_names=names,
            dynamo=dynamo,
            verbose=False,
            **axes,
        )


def session(path: Path, optimized: Path | None = None, level: Any = None) -> Any:
    """Open a file without optimizing it, or have it optimized and written."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level or onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def imported(path: Path, x: np.ndarray) -> LiftedModel:
    """Import the net in a file; if the exporter has fixed the batch size in it, pass the shape."""
    try:
        return lift_model(read_model(path), ImportOptions(), "the model")
    except NetspecError as error:
        try:
            return lift_model(read_model(path), ImportOptions(shapes={"x": x.shape}), "the model")
        except NetspecError:
            raise error from None


def compare(path: Path, x: np.ndarray, plain: Any, tolerance: float) -> tuple[str, str]:
    """The outcome for one file, and the reason."""
    try:
        model = imported(path, x)
    except NetspecError as error:
        return "refused", NAMES.sub("…", error.problems[0].message)
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    net_file = path.with_suffix(".yaml")
    net_file.write_text(model.imported.net)
    net = Net(load_net(net_file), model.imported.arrays)
    (view,) = model.inputs.values()
    if view.batch is None:
        x = x[: net.spec.inputs[view.name].shape[0]]  # an open batch that is part of the sample has the size 1
    expected = dict(zip([output.name for output in plain.get_outputs()], plain.run(None, {"x": x}), strict=True))
    results = net.predict({view.name: view.to_net(x)})
    for name, view in model.outputs.items():
        want, have = expected[name], view.from_net(results[view.name])
        if have.shape != want.shape:
            return "wrong", f"{name}: {have.shape} instead of {want.shape}"
        gap = float(np.abs(have - want).max(initial=0)) / max(1.0, float(np.abs(want).max(initial=0)))
        if not gap <= tolerance:
            return "wrong", f"{name} differs by {gap:.1e}"
    return "agree", ""


def own_operators(path: Path) -> set[str]:
    """The operators of a file that are not ONNX's."""
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return {f"{node.domain}.{node.op_type}" for node in nodes if node.domain not in ("", "ai.onnx")}


class Calibration(quantization.CalibrationDataReader):
    """One batch to calibrate value ranges with."""

    def __init__(self, x: np.ndarray) -> None:
        self.batches = iter([{"x": x}])

    def get_next(self) -> Any:
        return next(self.batches, None)


def quantized(path: Path, x: np.ndarray) -> Iterator[tuple[str, Path]]:
    """Quantize a file with onnxruntime in each of its ways."""
    for name in ("dynamic", "QOperator", "QDQ"):
        file = path.with_name(f"{path.stem}-{name}.onnx")
        try:
            with silent():
                if name == "dynamic":
                    quantization.quantize_dynamic(str(path), str(file))
                else:
                    form = quantization.QuantFormat[name]
                    quantization.quantize_static(str(path), str(file), Calibration(x), quant_format=form)
            session(file).run(None, {"x": x})
        except Exception as error:  # of any class: onnxruntime cannot quantize this model
            logging.getLogger(__name__).debug("%s: %s", file, error)
            continue
        yield name, file


def files(model: RandomModel, folder: Path, counts: Counts) -> Iterator[tuple[str, Path, Any, float]]:
    """Each file of a model: its kind, its path, a session with the expected results, and the tolerance."""
    x = model.example.numpy()
    for exporter in ("torchscript", "dynamo"):
        for batch in ("open", "fixed"):
            kind, path = f"{exporter} {batch}", folder / f"{exporter}-{batch}.onnx"
            try:
                export(model, path, exporter == "dynamo", batch == "open")
                plain = session(path)
                plain.run(None, {"x": x})
            except Exception as error:  # of any class: PyTorch cannot write this model so
                counts.add(kind, "not written")
                logging.getLogger(__name__).debug("%s: %s", kind, error)
                continue
            yield kind, path, plain, TOLERANCE
            for name, level in LEVELS.items():
                optimized = path.with_name(f"{path.stem}-{name}.onnx")
                session(path, optimized, level)
                yield f"{kind}, {name}", optimized, plain, TOLERANCE
            if batch == "fixed" and model.example.is_floating_point():
                for name, file in quantized(path, x):
                    yield f"{exporter} {name}", file, session(file), ROUNDED
                    optimized = file.with_name(f"{file.stem}-extended.onnx")
                    session(file, optimized, LEVELS["extended"])
                    yield f"{exporter} {name}, extended", optimized, session(file), ROUNDED


def main() -> None:
    """Make models, compare their files, print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers.random_torch_onnx", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="make this many models [20]")
    parser.add_argument("--seed", default="0", help="seed the random models [0]")
    parser.add_argument("--first", type=int, default=0, help="start with the model of this number [0]")
    parser.add_argument("--keep", type=Path, help="keep the files in this folder [a temporary one]")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    counts = Counts()
    for index in range(arguments.first, arguments.first + arguments.count):
        model = random_model(f"{arguments.seed}/{index}")
        with contextlib.ExitStack() as stack:
            folder = (
                arguments.keep / str(index)
                if arguments.keep
                else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            )
            folder.mkdir(parents=True, exist_ok=True)
            for kind, path, plain, tolerance in files(model, folder, counts):
                state, why = compare(path, model.example.numpy(), plain, tolerance)
                counts.add(kind, "made")
                counts.add(kind, state)
                if state == "refused":
                    counts.reasons[why] += 1
                if state == "agree":
                    counts.operators.update(own_operators(path))
                else:
                    print(f"model {index}, {kind}: {state}: {why}", flush=True)
                if state in ("wrong", "crashed"):
                    print("\n".join(f"  {line}" for line in model.describe()), flush=True)
    print(counts.report())


if __name__ == "__main__":
    main()
