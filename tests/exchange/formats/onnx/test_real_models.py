"""Real models of other authors, in the folder NETSPEC_MODELS: each is imported and gives its recorded outputs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from netspec.exchange.formats.onnx.importing import import_onnx
from netspec.exchange.interface import ImportOptions
from netspec.exchange.net_yaml_writer import clean
from netspec.schema.load import load_net
from tests.exchange.nets import Net

MODELS = os.environ.get("NETSPEC_MODELS")
OPEN: dict[str, dict[str, tuple[int, ...]]] = {
    "mtcnn_pnet": {"input_1": (48, 64, 3)},
    "ppocrv2_cls": {"x": (3, 48, 192)},
    "silero_vad_16k_sequence": {"sequence_length": (10,)},
}
"""Sizes that models leave open."""


@pytest.mark.skipif(not MODELS, reason="NETSPEC_MODELS names no folder with the models")
@pytest.mark.parametrize(
    "name", ["mnist_cntk", "mtcnn_onet", "mtcnn_pnet", "mtcnn_rnet", "ppocrv2_cls", "silero_vad_16k_sequence"]
)
def test_it_gives_the_outputs_that_it_gave(name: str, tmp_path: Path) -> None:
    folder = Path(MODELS or "", "onnx", name)
    imported = import_onnx(folder / "model.onnx", ImportOptions(shapes=OPEN.get(name, {})))
    (tmp_path / "net.yaml").write_text(imported.net)
    net = Net(load_net(tmp_path / "net.yaml"), imported.arrays)
    references = sorted(folder.glob("reference*.npz"))
    assert references
    for reference in references:
        with np.load(reference) as recorded:
            inputs = {clean(str(name)): recorded[f"in_{index}"] for index, name in enumerate(recorded["in_names"])}
            without_batch = all(net.spec.inputs[name].shape == array.shape for name, array in inputs.items())
            outputs = net.predict(
                {name: array[np.newaxis] if without_batch else array for name, array in inputs.items()}
            )
            for index, output_name in enumerate(recorded["out_names"]):
                y = outputs[clean(str(output_name))]
                np.testing.assert_allclose(y[0] if without_batch else y, recorded[f"out_{index}"], rtol=1e-3, atol=1e-4)
