"""PyTorch weights in netspec's layers give the same outputs, and can be written to the same file again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import netspec
from netspec.exchange.formats.native.safetensors import read_safetensors, write_safetensors
from netspec.exchange.formats.pytorch.state_dicts import to_state_dict
from tests.peers.recordings import load_answers
from tests.peers.state_dicts import NET

ANSWERS = load_answers("state_dicts")


@pytest.mark.slow
def test_a_state_dict_predicts_as_in_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_bytes(ANSWERS["weights"].tobytes())
    prediction = netspec.load(NET, path).predict({"image": ANSWERS["image"], "words": ANSWERS["words"]})
    for name in ("head", "rnn"):  # float32 through a dozen layers
        np.testing.assert_allclose(prediction[name], ANSWERS[name], rtol=1e-5, atol=1e-5)


def test_written_state_dicts_equal_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_bytes(ANSWERS["weights"].tobytes())
    model = netspec.load(NET, path)
    written = to_state_dict(dict(model.parameters))
    pytorch_array, metadata = read_safetensors(path)
    assert metadata == {}
    assert written.keys() == pytorch_array.keys()
    sums = ("lstm.bias_{}_l0", "projected.bias_{}_l0", "rnn.bias_{}_l0")
    for name, array in pytorch_array.items():
        assert written[name].shape == array.shape, name
        if not any(name == sum.format(kind) for sum in sums for kind in ("ih", "hh")):  # netspec stores only their sum
            np.testing.assert_array_equal(written[name], array)
    for sum in sums:
        ih, hh = sum.format("ih"), sum.format("hh")
        np.testing.assert_allclose(written[ih] + written[hh], pytorch_array[ih] + pytorch_array[hh], rtol=1e-6)
    write_safetensors(tmp_path / "again.safetensors", pytorch_array, metadata)
    repeated, _ = read_safetensors(tmp_path / "again.safetensors")
    assert all((repeated[name] == pytorch_array[name]).all() for name in pytorch_array)
