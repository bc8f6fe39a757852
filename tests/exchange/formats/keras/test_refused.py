"""Unsupported and untrusted content is reported by name, all at once; nothing in a file is executed."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.importing import import_model
from tests.exchange.formats.keras.recorded import FILES
from tests.exchange.formats.keras.written import archive, functional, given, new, new_model, op, tree


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        import_model(path)
    return str(caught.value)


CODE = {"class_name": "__lambda__", "config": {"value": ["4wEAAAA=", None, None]}}


def test_everything_without_a_counterpart_is_listed_at_once(tmp_path: Path) -> None:
    model = new_model(
        new("Lambda", name="code", function=CODE),
        {**new("Swirl", name="own"), "module": "my_package.layers", "registered_name": "my_package>Swirl"},
        {**new("Dense", name="mine", units=2), "registered_name": "Mine>Dense"},
        new("Dense", name="rank", units=2, lora_rank=4),
        new("Dense", name="act", units=2, activation={"class_name": "function", "config": "my_function"}),
        new("AutoContrast", name="flip"),
        new("Dense", name="small", units=2, dtype={"class_name": "QuantizedDTypePolicy", "config": {
            "name": "int8_from_float32"}}),
    )  # fmt: skip
    message = refused(archive(tmp_path / "m.keras", model))
    for part in (
        "`code` (Lambda) can't be imported: Lambda runs code, which netspec never does",
        "Swirl is a class of the package 'my_package'",
        "Mine>Dense is a user-defined class",
        "`lora_rank: 4` has no counterpart",
        "Keras defines no activation 'my_function'",
        "a transform of the data",
        "quantized (int8_from_float32)",
    ):
        assert part in message
    assert message.count("can't be imported") == 7


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (new("Lambda", name="a", function=CODE), "runs code"),
        ({**new("Swirl", name="a"), "module": "my_package.layers"}, "a class of the package 'my_package'"),
        ({**new("Dense", name="a", units=2), "registered_name": "Mine>Dense"}, "a user-defined class"),
        (new("Dense", name="a", units=2, lora_rank=4), "`lora_rank: 4` has no counterpart"),
        (new("Dense", name="a", units=2, activation={
            "class_name": "function", "config": "own"}), "Keras defines no activation 'own'"),
        (new("Dense", name="a", units=2, activation=CODE), "__lambda__ runs code"),
        (new("Dense", name="a", units=2, kernel_initializer={
            "class_name": "Drawn", "module": "os", "config": {}}), "a class of the package 'os'"),
        (new("AutoContrast", name="a"), "a transform of the data"),
        (new("Dense", name="a", units=2, dtype={
            "class_name": "P", "config": {"name": "int8_from_float32"}}), "quantized"),
        (new("Dense", name="a", units="many"), "Dense does not take it: `units`"),
        (new("Conv2D", name="a", filters=1, kernel_size=2), "`a` (Conv2D)"),
        (new("TFSMLayer", name="a", filepath="/etc"), "runs code"),
    ],
)  # fmt: skip
def test_a_layer_without_a_counterpart(layer: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in refused(archive(tmp_path / "m.keras", new_model(layer)))


@pytest.mark.parametrize(("nan", "text"), [(float("inf"), "inf"), ([0.0, 1.0], "[0.0, 1.0]"), (True, "True")])
def test_nan_is_replaced_by_finite_numbers_only(nan: Any, text: str, tmp_path: Path) -> None:
    model = functional(tmp_path / "m.keras", given("x", 4), op("NanToNum", "finite", "x", nan=nan))
    assert f"`finite` (NanToNum) can't be imported: its replacement for NaN or infinity is {text}" in refused(model)


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"class_name": "MyModel", "module": "mine", "config": {}}, "'MyModel', whose code is not in the file"),
        ({"class_name": "Functional", "config": {"name": "m", "layers": []}}, "damaged"),
        ({"class_name": "Functional", "config": {"name": "m", "layers": 3, "output_layers": []}}, "no list of layers"),
        ({"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense"}]}}, "no configuration"),
        ("{", "its configuration is damaged"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "its configuration is damaged"),
    ],
)
def test_a_damaged_configuration(config: Any, part: str, tmp_path: Path) -> None:
    message = refused(archive(tmp_path / "m.keras", config))
    assert part in message or "damaged" in message
    assert "m.keras" in message


def circle() -> dict[str, Any]:
    def dense(name: str, reads: str) -> dict[str, Any]:
        return {**new("Dense", name=name, units=2), "name": name, "inbound_nodes": [[[reads, 0, 0, {}]]]}

    layers = [dense("a", "b"), dense("b", "a")]
    return {"class_name": "Functional", "config": {"name": "m", "layers": layers, "input_layers": [],
                                                   "output_layers": [["b", 0, 0]]}}  # fmt: skip


def test_layers_that_read_each_other(tmp_path: Path) -> None:
    assert "read each other in a circle" in refused(archive(tmp_path / "m.keras", circle()))


def test_models_without_end(tmp_path: Path) -> None:
    config: dict[str, Any] = new_model(new("Dense", name="a", units=2))
    for depth in range(60):
        config = {**new_model(config), "config": {"name": f"m{depth}", "layers": [config]}}
    assert "models are nested more than" in refused(archive(tmp_path / "m.keras", config))


def test_models_that_call_each_other_over_and_over(tmp_path: Path) -> None:
    """25 nested models without layers, each of which calls the inner one twice: 33 million calls."""
    entry = {**new("InputLayer", name="x", batch_shape=[None, 4]), "name": "x", "inbound_nodes": []}
    config: dict[str, Any] = {}
    for depth in range(25):
        inner = [{**config, "name": "m", "inbound_nodes": [[["x", 0, 0, {}]], [["m", 1, 0, {}]]]}] if config else []
        ends = {"input_layers": [["x", 0, 0]], "output_layers": [["m", 2, 0] if inner else ["x", 0, 0]]}
        config = {"class_name": "Functional", "config": {"name": f"m{depth}", "layers": [entry, *inner], **ends}}
    assert "called more than" in refused(archive(tmp_path / "m.keras", config))


DENSE = new_model(new("Dense", name="a", units=2))
SOUND = {"layers/dense/vars/0": np.zeros((4, 2), np.float32), "layers/dense/vars/1": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (tree({}), "`kernel` of the layer `a` is missing"),
        (tree({**SOUND, "layers/dense/vars/0": np.zeros((4, 3), np.float32)}), "has the wrong shape"),
        (tree(SOUND)[:900], "damaged"),
        (b"version https://git-lfs.github.com/spec/v1\n", "damaged"),
        (None, "has no weights"),
        (tree({**SOUND, "layers/dense/vars/0": np.array([b"text"])}), "is not numeric"),
    ],
)
def test_weights_that_are_wrong(weights: bytes | None, message: str, tmp_path: Path) -> None:
    assert message in refused(archive(tmp_path / "m.keras", DENSE, weights))


def test_weights_that_are_not_finite_are_noted(tmp_path: Path) -> None:
    wild = {**SOUND, "layers/dense/vars/1": np.array([1, np.nan], np.float32)}
    imported = import_model(archive(tmp_path / "m.keras", DENSE, tree(wild)))
    assert "the weights `a/bias` hold values that are not finite" in imported.notes


def linked(kind: Any) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["layers/dense/vars/1"] = SOUND["layers/dense/vars/1"]
        file["layers/dense/vars/0"] = kind
    return buffer.getvalue()


def test_links_are_refused(tmp_path: Path) -> None:
    for layer in (h5py.SoftLink("/layers"), h5py.ExternalLink("/etc/passwd", "/")):
        assert "is a link, not stored here" in refused(archive(tmp_path / "m.keras", DENSE, linked(layer)))


def test_links_in_a_keras_file_are_refused(tmp_path: Path) -> None:
    """The format is recognized although the file contains a link."""
    path = tmp_path / "m.h5"
    for link in (h5py.SoftLink("/other"), h5py.ExternalLink("/etc/passwd", "/")):
        with h5py.File(path, "w") as file:
            file.attrs["model_config"] = json.dumps(DENSE)
            file["model_weights/a/kernel:0"] = link
        assert "'model_weights/a/kernel:0' is a link, not stored here" in refused(path)


def made(shape: tuple[int, ...], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["layers/dense/vars/1"] = SOUND["layers/dense/vars/1"]
        file.create_dataset("layers/dense/vars/0", shape, np.float32, **options)
    return buffer.getvalue()


def test_more_declared_than_stored_is_refused(tmp_path: Path) -> None:
    for weights in (made((2**20, 2**20), chunks=(2**10, 2**10)), made((4, 2), external=[("/etc/passwd", 0, 32)])):
        message = refused(archive(tmp_path / "m.keras", DENSE, weights))
        assert "are stored" in message or "in other files" in message


def test_a_group_that_holds_itself(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        group = file.create_group("layers")
        group["again"] = group
    assert "contains itself" in refused(archive(tmp_path / "m.keras", DENSE, buffer.getvalue()))


def test_archives_that_are_traps(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    assert "outside" in refused(archive(path, DENSE, tree(SOUND), **{"../../evil": b""}))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("config.json", json.dumps(DENSE))
        file.writestr("model.weights.h5", b"\0" * 2**28)
    assert "declares" in refused(path) or "damaged" in refused(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", json.dumps(DENSE))
        file.writestr("model.weights.json", "{}")
    assert "without shards" in refused(path)


@pytest.mark.parametrize("name", ["first.keras", "nested.h5"])
def test_damage_ends_in_an_error(name: str, tmp_path: Path) -> None:
    """Bytes changed and files truncated at many positions: the result is an answer or an `InputError`, nothing else."""
    sound = (FILES / name).read_bytes()
    random = np.random.default_rng(7)
    path = tmp_path / name
    for _ in range(60):
        data = bytearray(sound)
        for offset in random.integers(0, len(data), 3):
            data[offset] = int(random.integers(0, 256))
        path.write_bytes(bytes(data[: int(random.integers(1, len(data) + 1))] if random.random() < 0.3 else data))
        try:
            import_model(path)
        except InputError as error:
            assert str(error)  # noqa: PT017  # whichever comes, it says what is wrong


def test_an_offset_that_no_file_has_is_damage(tmp_path: Path) -> None:
    """The superblock of the weights names a block at 2⁶³ + 8, for which h5py raises OverflowError."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"], file["layers/dense/vars/1"] = np.ones((4, 2), "float32"), np.ones(2, "float32")
    content = bytearray(weights.getvalue())
    content[48:56] = (2**63 + 8).to_bytes(8, "little")
    model = archive(tmp_path / "m.keras", new_model(new("Dense", name="dense", units=2)))
    with zipfile.ZipFile(model) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(model, "w") as packed:
        for name, member in {**members, "model.weights.h5": bytes(content)}.items():
            packed.writestr(name, member)
    assert "m.keras (model.weights.h5) is damaged" in refused(model)
