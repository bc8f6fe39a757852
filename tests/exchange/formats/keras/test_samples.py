"""Indices of samples within a batch: imported if each sample only uses its own index, refused otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.importing import import_model
from netspec.schema.load import load_net
from tests.exchange.formats.keras.written import CORE, functional, given, op
from tests.exchange.nets import Net

NUMBERS = [
    op("OnesLike", "ones", "places"), op("Cumsum", "sums", "ones", axis=0),
    op("Subtract", "numbers", "sums", 1),
]  # fmt: skip
INPUTS = [given("data", 5, 2), given("places", 1), given("new", 2)]


def test_scattering_into_each_sample_is_imported(tmp_path: Path) -> None:
    index = op("Concatenate", "index", ["numbers", "places"], axis=1)
    scatter = op("ScatterUpdate", "put", "data", "index", "new", module=CORE, reduction="add")
    imported = import_model(functional(tmp_path / "m.keras", *INPUTS, *NUMBERS, index, scatter))
    (tmp_path / "net.yaml").write_text(imported.net)
    net = Net(load_net(tmp_path / "net.yaml"), imported.arrays)
    assert [getattr(layer, "type", "") for layer in net.spec.layers] == ["Cast", "ScatterND"]  # sample indices are gone
    data, new = np.ones((3, 5, 2), "float32"), np.arange(6, dtype="float32").reshape(3, 2)
    (output,) = net.predict({"data": data, "places": np.array([[4], [0], [4]], "float32"), "new": new}).values()
    for sample, index_ in enumerate((4, 0, 4)):
        data[sample, index_] += new[sample]
    np.testing.assert_array_equal(output, data)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([op("Cumsum", "sums", "data", axis=0)], "`sums` (Cumsum) can't be imported: it operates along the batch axis"),
        (NUMBERS, "the output of `numbers` combines samples of the batch"),
        ([op("Reshape", "rows", "data", newshape=[-1, 2])], "the output of `rows` combines samples"),
        ([op("Reshape", "rows", "data", newshape=[-1, 2]), op("Exp", "e", "rows")], "`rows` combines samples"),
        ([*NUMBERS, op("Add", "sum", "numbers", "places")], "`numbers` combines samples of the batch"),
        ([op("ScatterUpdate", "put", "data", "places", "new", module=CORE, reduction=None)],
         "must be the index of each sample"),
        ([*NUMBERS, op("Concatenate", "index", ["places", "numbers"], axis=1)], "`numbers` combines samples"),
    ],
)  # fmt: skip
def test_operations_across_samples_are_refused(layers: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        import_model(functional(tmp_path / "m.keras", *INPUTS, *layers))
    assert message in str(refused.value)
