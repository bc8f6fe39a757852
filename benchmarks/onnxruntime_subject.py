"""ONNX Runtime as a subject: a net that netspec exported."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read on import

import onnxruntime as ort


def warm_up() -> None:
    """Run a model with one node."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.ones(2, np.float32)})


class OnnxRuntimePrediction:
    """`net.onnx` of a folder, with all optimizations, fixed sizes, and bound inputs and outputs."""

    def __init__(self, folder: Path, threads: int) -> None:
        start = perf_counter()
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        if os.environ.get("OMP_WAIT_POLICY") == "passive":  # it has its own threads
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = ort.InferenceSession(str(folder / "net.onnx"), options, providers=["CPUExecutionProvider"])
        self.compile_seconds = perf_counter() - start
        self.binding = self.session.io_binding()
        with np.load(folder / "inputs.npz") as inputs:
            self.inputs = {name: ort.OrtValue.ortvalue_from_numpy(inputs[name]) for name in inputs.files}
        for name, value in self.inputs.items():
            self.binding.bind_ortvalue_input(name, value)
        for get_output in self.session.get_outputs():
            shape = [int(size) for size in get_output.shape]
            self.binding.bind_ortvalue_output(
                get_output.name, ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)
            )
        self.step()

    def step(self) -> None:
        """Run one prediction."""
        self.session.run_with_iobinding(self.binding)

    def largest_difference(self, folder: Path) -> float:
        """Return the largest difference from netspec's outputs, relative to the largest magnitude of each."""
        differences = [0.0]
        with np.load(folder / "outputs.npz") as outputs:
            for output, theirs in zip(self.session.get_outputs(), self.binding.copy_outputs_to_cpu(), strict=True):
                ours = outputs[output.name]
                differences.append(float(np.abs(ours - theirs).max() / np.abs(ours).max()))
        return max(differences)
