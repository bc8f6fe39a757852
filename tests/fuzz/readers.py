"""Every reader of data and models: small intact files for it, and a function that reads them completely."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

MODELS = os.environ.get("NETSPEC_MODELS")
"""A folder of real models, which are damaged too; each subfolder is a format."""
LARGEST_NET = 2**20
"""Largest number of elements of all values of an imported net that is run."""
LARGEST = 3_000_000
"""Largest size in bytes of a real model to damage."""
MAX_SAMPLES = 200
"""Largest number of samples to read of a damaged data set."""
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (6, 8, 9, 3)).astype(np.uint8)
X, Y = RANDOM.normal(size=(20, 3, 4)).astype(np.float32), np.arange(20) % 3
TEXT = "The quick brown fox\njumps over the lazy dog, 3 times.\n" * 20

NET = {
    "netspec": 1,
    "inputs": {"image": {"shape": [2, 6, 6]}},
    "layers": [
        {"name": "conv", "type": "Conv2D", "filters": 3, "kernel_size": 3, "padding": "same", "activation": "relu"},
        {"name": "norm", "type": "BatchNormalization"},
        {"name": "pool", "type": "MaxPooling2D", "pool_size": 2},
        {"name": "flat", "type": "Flatten"},
        {"name": "head", "type": "Dense", "units": 4},
        {"name": "out", "type": "Softmax"},
    ],
}


class WrongContent(Exception):
    """A file was accepted although its content cannot be right."""


@dataclass(frozen=True)
class Reader:
    """A reader: `make` writes intact files into a folder, `read` reads the folder as a user's command would.

    `read` returns the content, and raises `WrongContent` if that cannot be right.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    damage: str = "*"
    """Pattern of the files that are damaged, one at a time."""
    seal: Callable[[bytes], bytes] = bytes
    """Corrects the checksum of a damaged file, as an attacker would."""
    protected: bool = False
    """Whether the format has checksums of the whole content: a damaged file with another content must be refused."""
    refuses: bool = False
    """Whether intact files are refused too."""


# Models


@cache
def model() -> Any:
    """The net in the model files."""
    from netspec.schema.load import load_net
    from netspec.training.inference.model import load

    return load(load_net(NET))


def write_model(folder: Path, suffix: str) -> None:
    from netspec.tools.exporting.export import write_model

    write_model(model(), model().spec, folder / f"model{suffix}", model().preprocessing)


def import_model(folder: Path, suffix: str) -> Any:
    """Import the net with its weights, then only the weights for an existing net."""
    from netspec.errors import NetspecError

    path = folder / f"model{suffix}"
    content, refusals = [], []
    for read in (import_net, load_weights):
        try:
            content.append(read(path))
        except NetspecError as error:
            refusals.append(error)
            content.append(None)
    if len(refusals) == 2:
        raise refusals[0]
    return content


def load_weights(path: Path) -> Any:
    """Load the weights in a file into an existing net."""
    loaded().load_weights(path)
    return dict(loaded().compiler.states)


@cache
def loaded() -> Any:
    """The net into which weights are loaded."""
    from netspec.schema.load import load_net
    from netspec.training.inference.model import load

    return load(load_net(NET), device="reference")


def import_net(path: Path) -> Any:
    """Import the net in a file, build it, and run it on an input if it is small."""
    from netspec.compile import ProgramKind
    from netspec.exchange.importing import import_model
    from netspec.schema.load import load_net
    from netspec.schema.yaml.reader import parse_yaml
    from netspec.training.inference.model import assign_arrays, load

    imported = import_model(path)
    net = load(load_net(parse_yaml(imported.net, str(path))), device="reference")
    if imported.arrays:
        assign_arrays(net.compiler, imported.arrays, source=str(path))
    graph = net.compiler.graph(ProgramKind.PREDICT, 2)
    if sum(value.type.size for node in graph.nodes() for value in node.outputs) > LARGEST_NET:
        return imported.net, imported.arrays
    random = np.random.default_rng(1)
    inputs = {
        name: random.normal(size=(2, *field.shape)).astype(field.dtype) for name, field in net.spec.inputs.items()
    }
    results = net.predict(inputs)
    if path.suffix == ".onnx":
        check_by_onnxruntime(path, [*inputs.values()], [*results.values()])
    return imported.net, imported.arrays, results


def check_by_onnxruntime(path: Path, inputs: list[Any], results: list[Any]) -> None:
    """Raise `WrongContent` if onnxruntime reads the same model, but computes other results."""
    import onnxruntime

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        right = session.run(None, dict(zip(names, inputs, strict=True)))
    except Exception:  # onnxruntime refuses some models that netspec imports: there is nothing to compare
        return
    for array, expected in zip(results, right, strict=False):
        close = array.shape == expected.shape and np.allclose(array, expected, rtol=1e-3, atol=1e-4, equal_nan=True)
        if not close and np.isfinite(expected).all():
            raise WrongContent(
                f"onnxruntime computes {expected.ravel()[:4]} {expected.shape}, netspec {array.ravel()[:4]}"
            )


def write_checkpoint(folder: Path) -> None:
    from netspec.exchange.formats.native.hdf5 import write_checkpoint

    write_checkpoint(folder / "c.h5", {"a/kernel": X}, {"a/kernel": "parameter"}, {"step": 3}, "net: net.yaml")


def read_checkpoint(folder: Path) -> Any:
    from netspec.exchange.formats.native.hdf5 import read_checkpoint

    return read_checkpoint(folder / "c.h5")


def write_capsule(folder: Path) -> None:
    from netspec.exchange.formats.native.hdf5 import CapsuleFile, write_capsule

    capsule = CapsuleFile({"a/kernel": X}, {"x": X}, {}, "net: net.yaml", {"step": 3})
    write_capsule(folder / "c.h5", capsule, {"a/kernel": "parameter"})


def read_capsule(folder: Path) -> Any:
    from netspec.exchange.formats.native.hdf5 import read_capsule

    return read_capsule(folder / "c.h5")


def sealed(data: bytes) -> bytes:
    """One of netspec's own files with the right size and checksum in its text block."""
    from netspec.exchange.formats.native.hdf5_file import BLOCK_BYTES, HeaderBlock

    kind = next((kind for kind in ("checkpoint", "capsule") if kind.encode() in data[:BLOCK_BYTES]), "weights")
    digest = hashlib.sha256(data[BLOCK_BYTES:]).hexdigest()
    step = 3 if kind == "checkpoint" else None
    return HeaderBlock(kind, 1, max(len(data), BLOCK_BYTES), digest, step).render() + data[BLOCK_BYTES:]


def write_solver(folder: Path, kind: str) -> None:
    from tests.exchange.formats.caffe.test_solver_import import NET as CAFFE_NET
    from tests.exchange.formats.caffe.test_solver_import import SOLVER, state_of

    (folder / "small.prototxt").write_text(CAFFE_NET)
    (folder / "solver.prototxt").write_text(SOLVER + 'net: "small.prototxt"')
    history = [np.zeros((5, 18), np.float32), np.zeros(5, np.float32)]
    state_of(folder, kind, history, "small.caffemodel")


def read_solver(folder: Path, kind: str) -> Any:
    from netspec.exchange.formats.caffe.solver.states import read_state
    from netspec.exchange.importing import import_model

    state = read_state(folder / f"small_iter_7.solverstate{kind}")
    return state, import_model(folder / "solver.prototxt")


def write_onnx_with_data(folder: Path) -> None:
    """A model whose weights are in a separate file."""
    import onnx

    write_model(folder, ".onnx")
    proto = onnx.load(folder / "model.onnx")
    onnx.save_model(proto, folder / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)


def write_old_keras(folder: Path) -> None:
    """A model in HDF5 as Keras 2 writes it, with strings in attributes."""
    import h5py

    with h5py.File(folder / "model.h5", "w") as file:
        layers = [{"class_name": "Dense", "config": {"name": "d", "units": 2, "batch_input_shape": [None, 3]}}]
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        file.attrs.update({"model_config": json.dumps(config), "keras_version": "2.2.4", "backend": "tensorflow"})
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [b"d"]
        layer = weights.create_group("d")
        layer.attrs["weight_names"] = [b"d/kernel:0", b"d/bias:0"]
        layer["d/kernel:0"], layer["d/bias:0"] = np.zeros((3, 2), np.float32), np.zeros(2, np.float32)


def write_pytorch(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/version", b"3\n")


# Data


# Specs


def write_specs(folder: Path) -> None:
    """A net, a training of it and a search, with most of the language."""
    shutil.copytree(Path(__file__).with_name("specs"), folder, dirs_exist_ok=True)


def read_spec(folder: Path, name: str) -> Any:
    """Load a spec, and build its net and the step of its training."""
    from netspec.compile import Compiler, ProgramKind
    from netspec.schema.language.provenance import canonical_yaml
    from netspec.schema.load import load_spec
    from netspec.schema.specs.train import TrainSpec
    from netspec.schema.yaml.reader import parse_yaml
    from netspec.training.compiler import training_compiler

    spec = load_spec(folder / name)
    text = canonical_yaml(spec)
    if canonical_yaml(load_spec(parse_yaml(text, name))) != text:
        raise WrongContent("the resolved spec is another when it is loaded again")
    if isinstance(spec, TrainSpec):
        training_compiler(spec, "reference").graph(ProgramKind.TRAIN, 2)
    else:
        Compiler(spec).graph(ProgramKind.PREDICT, 2)
    return text


def read_source(folder: Path, **fields: Any) -> Any:
    """Open a source and read its samples, one at a time and all at once."""
    from tests.data.conftest import split_of

    dataset = split_of(str(folder / "train.yaml"), **fields).open()
    count = min(len(dataset), MAX_SAMPLES)
    problem, content = None, []
    for indices in (np.arange(count), *np.arange(count)[:, None]):
        try:
            content.append(dataset.read(indices))
        except Exception as error:  # read the others, too
            problem = problem or error
    for index in (0, count - 1):
        dataset.describe(index)
    if problem is not None:
        raise problem
    for name, field in dataset.fields.items():
        shape = (count, *field.shape)
        if None not in shape and np.shape(content[0][name]) != shape:
            raise WrongContent(f"{name} has the shape {np.shape(content[0][name])}, it should have {shape}")
    return content


def write_hdf5(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        file["x"], file["label"] = X, Y


def write_packed_hdf5(folder: Path) -> None:
    """HDF5 files with chunks, attributes and groups, and a list of files as for Caffe."""
    import h5py

    for name in ("a.h5", "b.h5"):
        with h5py.File(folder / name, "w", libver="latest" if name == "b.h5" else "earliest") as file:
            file.create_dataset("g/data", data=X, chunks=(3, 3, 4), compression="gzip")
            file.create_dataset("label", data=Y, chunks=(7,), maxshape=(None,))
            file["label"].attrs["dtype"] = "a text"
    (folder / "files.txt").write_text("a.h5\nb.h5\n")


def write_idx(folder: Path, *, packed: bool) -> None:
    import gzip

    pack = gzip.compress if packed else bytes
    pixels, labels = IMAGES[..., 0], np.arange(6, dtype=np.uint8)
    (folder / "images").write_bytes(pack(b"\0\0\x08\x03" + struct.pack(">3I", *pixels.shape) + pixels.tobytes()))
    (folder / "labels").write_bytes(pack(b"\0\0\x08\x01" + struct.pack(">I", 6) + labels.tobytes()))


def write_cifar(folder: Path) -> None:
    records = RANDOM.integers(0, 256, (5, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    (folder / "a.bin").write_bytes(records.tobytes())


def rows() -> Iterator[tuple[int, str, str, str]]:
    colors = ("red", "blue", "Grün")
    for index in range(60):
        yield index, colors[index % 3], f"{index / 7:.3f}", f"2024-0{1 + index % 9}-1{index % 9}"


def write_csv(folder: Path) -> None:
    lines = ["id,color,size,day", *(f'{number},"{color}",{size},{day}' for number, color, size, day in rows())]
    (folder / "a.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, color, size, day = zip(*rows(), strict=True)
    columns = {"id": number, "color": color, "size": [float(value) for value in size], "day": day}
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=20, compression="snappy")


TABLE: dict[str, Any] = {
    "columns": {
        "id": "numeric", "size": "numeric", "day": "date", "color": {"type": "categorical", "output_mode": "int"}
    },
}  # fmt: skip


def write_lmdb(folder: Path, *, png: bool) -> None:
    from tests.data.test_lmdb import datum, encoded, write

    values = {
        f"{index:03}".encode(): encoded(image, index) if png else datum(image.transpose(2, 0, 1), index)
        for index, image in enumerate(IMAGES)
    }
    write(folder / "a.lmdb", values, subdir=False)
    (folder / "a.lmdb-lock").unlink(missing_ok=True)


def write_images(folder: Path, kind: str, **options: Any) -> None:
    """An image of each class; the first one has an EXIF tag for a rotation."""
    from PIL import Image

    tags = Image.Exif()
    tags[0x0112] = 6
    for index, pixels in enumerate(IMAGES[:3]):
        image = Image.fromarray(pixels if kind != "bmp" else pixels[..., 0])
        tagged: dict[str, Any] = {"exif": tags} if index == 0 and kind != "bmp" else {}
        image.save(folder / f"c{index}.{kind}", **tagged, **options)
    lines = [f"c{index}.{kind} {index}" for index in range(3)]
    (folder / "list.txt").write_text("\n".join(lines) + "\n")


def write_image_list(folder: Path) -> None:
    write_images(folder, "png")
    (folder / "list.csv").write_text('path,label,class\nc0.png,0,cat\nc1.png,1,dog\n"c2.png",0,cat\n')


def write_masks(folder: Path) -> None:
    """Images, next to masks with palettes."""
    from PIL import Image

    for index, pixels in enumerate(IMAGES[:3]):
        Image.fromarray(pixels).save(folder / f"c{index}.png")
        mask = Image.fromarray(pixels[..., 0] // 128, mode="P")
        mask.putpalette([0, 0, 0, 255, 0, 0])
        mask.save(folder / f"c{index}_mask.png")
    (folder / "list.txt").write_text("c0\nc1.png\nc2\n")


def write_boxes(folder: Path) -> None:
    """Images with a box each, in COCO's, Pascal VOC's and YOLO's format."""
    write_images(folder, "png")
    names = [f"c{index}.png" for index in range(3)]
    document = {
        "images": [{"id": index, "file_name": name} for index, name in enumerate(names)],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": index, "image_id": index, "category_id": 1, "bbox": [1, 1, 2, 2]} for index in range(3)],
    }
    (folder / "boxes.json").write_text(json.dumps(document))
    corners = "<xmin>2</xmin><ymin>2</ymin><xmax>3</xmax><ymax>3</ymax>"
    for index, name in enumerate(names):
        (folder / f"c{index}.txt").write_text("0 0.5 0.5 0.25 0.5\n")
        (folder / f"c{index}.xml").write_text(
            f"<annotation><filename>{name}</filename><object><name>cat</name><bndbox>{corners}</bndbox></object></annotation>"
        )


def write_sounds(folder: Path) -> None:
    from tests.data.test_riff import chunk, encoded, form, wav

    for index, (kind, bits) in enumerate([(1, 16), (1, 24), (3, 32)]):
        samples = RANDOM.uniform(-1, 1, (2, 50))
        data = wav(form(kind, bits, 2, extensible=index == 1), encoded(samples, kind, bits), chunk(b"LIST", b"odd"))
        (folder / f"s{index}.wav").write_bytes(data)
    (folder / "list.csv").write_text("path,label\ns0.wav,up\ns1.wav,down\ns2.wav,up\n")


def write_text(folder: Path) -> None:
    (folder / "a.txt").write_text(TEXT + "naïve – ☃\n", encoding="utf-8")


def write_documents(folder: Path) -> None:
    for name in ("good", "bad"):
        (folder / f"{name}.txt").write_text(f"{name} {TEXT[:100]}", encoding="utf-8")


def write_tokenizer(folder: Path) -> None:
    from netspec.data.text.tokenizers.base import learned_tokenizer
    from tests.data.test_tokenizers import spec_of

    write_text(folder)
    learned = learned_tokenizer(spec_of("byte_pairs", size=280), [TEXT])[1]
    vocabulary = learned["vocabulary"]
    (folder / "tokenizer.json").write_text(
        vocabulary if isinstance(vocabulary, str) else json.dumps(vocabulary), encoding="utf-8"
    )


def write_mean(folder: Path, suffix: str) -> None:
    from netspec.exchange.formats.caffe.proto.binary import encode
    from netspec.exchange.formats.caffe.proto.message import Message

    mean, path = X[0, None], folder / f"mean{suffix}"
    if suffix == ".npy":
        np.save(path, mean)
    elif suffix == ".npz":
        np.savez(path, mean=mean)
    else:
        sizes = dict(zip(("num", "channels", "height", "width"), (1, *mean.shape), strict=True))
        path.write_bytes(encode(Message("BlobProto", data=mean.reshape(-1), **sizes)))


def read_mean(folder: Path, suffix: str) -> Any:
    from netspec.data.base import FieldType
    from netspec.schema.specs.data import TRANSFORMS
    from tests.data.conftest import located

    fields = located({"type": "MeanImage", "file": f"mean{suffix}"}, str(folder / "train.yaml"))
    transform: Any = TRANSFORMS.parse(fields)
    return transform.learn(FieldType((3, 4), "float32"), ())


def read_gains(folder: Path, suffix: str) -> Any:
    """Read the matrix of the loss InfoGain; as in the compiler, a shape mismatch becomes an `InputError`."""
    from netspec.errors import InputError, Location
    from netspec.graph.value import ShapeMismatch
    from netspec.schema.specs.kinds import LOSSES
    from tests.data.conftest import located

    loss: Any = LOSSES.parse(located({"type": "InfoGain", "file": f"gains{suffix}"}, str(folder / "net.yaml")))
    try:
        return loss.class_matrix(3, "float32")
    except ShapeMismatch as error:
        raise InputError(str(error), location=Location(str(folder / "net.yaml"), 1, 1)) from None


def write_gains(folder: Path, suffix: str) -> None:
    gains = np.eye(3)
    np.save(folder / "gains.npy", gains) if suffix == ".npy" else np.savetxt(folder / "gains.csv", gains, delimiter=",")


def real_models(folder: str | None) -> dict[str, Reader]:
    """A reader, by name, for each model in a folder that is small enough."""
    kinds = {".onnx", ".caffemodel", ".prototxt", ".h5", ".hdf5", ".keras", ".safetensors"}
    files = sorted(Path(folder).rglob("*")) if folder else []
    return {
        f"real {path.relative_to(str(folder))}": Reader(
            partial(_copy, path=path), partial(_import_only, name=path.name), refuses=True
        )
        for path in files
        if path.suffix in kinds and path.is_file() and path.stat().st_size < LARGEST
    }


def _copy(folder: Path, path: Path) -> None:
    shutil.copy(path, folder)


def _import_only(folder: Path, name: str) -> Any:
    from netspec.exchange.importing import import_model

    return import_model(folder / name)


def _model(suffix: str, make: Callable[[Path], None] | None = None) -> Reader:
    protected = make is None and suffix in (".h5", ".keras", ".npz")
    return Reader(
        make or partial(write_model, suffix=suffix), partial(import_model, suffix=suffix), protected=protected
    )


def _images(kind: str, **options: Any) -> Reader:
    source: dict[str, Any] = {"source": "image_folder", "path": ".", "list": "list.txt"}
    return Reader(partial(write_images, kind=kind, **options), partial(read_source, **source), f"*.{kind}")


def _source(make: Callable[[Path], None], damage: str = "*", *, protected: bool = False, **fields: Any) -> Reader:
    return Reader(make, partial(read_source, **fields), damage, protected=protected)


READERS: dict[str, Reader] = {
    **{f"spec {name}": Reader(write_specs, partial(read_spec, name=f"{name}.yaml"), f"{name}.yaml")
       for name in ("net", "train", "search")},
    **{f"model {suffix}": _model(suffix) for suffix in (
        ".h5", ".onnx", ".keras", ".weights.h5", ".prototxt", ".caffemodel", ".caffemodel.h5", ".npz", ".safetensors",
    )},
    "model .onnx with data": _model(".onnx", write_onnx_with_data),
    "model .h5 of Keras 2": _model(".h5", write_old_keras),
    "model .pt": Reader(write_pytorch, partial(import_model, suffix=".pt"), refuses=True),
    "model .h5, checksum right": Reader(
        partial(write_model, suffix=".h5"), partial(import_model, suffix=".h5"), seal=sealed
    ),
    "checkpoint": Reader(write_checkpoint, read_checkpoint, protected=True),
    "checkpoint, checksum right": Reader(write_checkpoint, read_checkpoint, seal=sealed),
    "capsule": Reader(write_capsule, read_capsule, protected=True),
    "capsule, checksum right": Reader(write_capsule, read_capsule, seal=sealed),
    "Caffe solver": Reader(partial(write_solver, kind=""), partial(read_solver, kind="")),
    "Caffe solver state in HDF5": Reader(
        partial(write_solver, kind=".h5"), partial(read_solver, kind=".h5"), "*.solverstate.h5"
    ),
    **{f"mean image {suffix}": Reader(
        partial(write_mean, suffix=suffix), partial(read_mean, suffix=suffix), protected=suffix == ".npz"
       )
       for suffix in (".npy", ".npz", ".binaryproto")},
    **{f"InfoGain {suffix}": Reader(partial(write_gains, suffix=suffix), partial(read_gains, suffix=suffix))
       for suffix in (".npy", ".csv")},
    "data npy": _source(
        lambda folder: np.save(folder / "x.npy", X), source="npy", files={"x": "x.npy"}
    ),
    "data npz": _source(
        lambda folder: np.savez(folder / "a.npz", x=X, y=Y), source="npz", path="a.npz", protected=True
    ),
    "data npz, packed": _source(
        lambda folder: np.savez_compressed(folder / "a.npz", x=X, y=Y), source="npz", path="a.npz", protected=True
    ),
    "data hdf5": _source(write_hdf5, source="hdf5", path="a.h5"),
    "data hdf5, packed": _source(write_packed_hdf5, source="hdf5", path="files.txt", arrays=["g/data", "label"]),
    "data idx": _source(partial(write_idx, packed=False), source="idx", images="images", labels="labels"),
    "data idx, packed": _source(
        partial(write_idx, packed=True), source="idx", images="images", labels="labels", protected=True
    ),
    "data cifar_binary": _source(write_cifar, source="cifar_binary", path="a.bin"),
    "data csv": _source(write_csv, source="csv", path="a.csv", header=True, **TABLE),
    "data parquet": _source(write_parquet, source="parquet", path="a.parquet", **TABLE),
    "data lmdb": _source(partial(write_lmdb, png=False), source="lmdb", path="a.lmdb"),
    "data lmdb of PNG": _source(partial(write_lmdb, png=True), source="lmdb", path="a.lmdb"),
    "images .png": _images("png"),
    "images .jpg": _images("jpg"),
    "images .jpg, progressive": _images("jpg", progressive=True),
    "images .webp": _images("webp", lossless=True),
    "images .bmp": _images("bmp"),
    "images .gif": _images("gif"),
    "images .tif": _images("tif", compression="tiff_lzw"),
    "list of images .txt": _source(
        partial(write_images, kind="png"), "list.txt", source="image_folder", path=".", list="list.txt"
    ),
    "list of images .csv": _source(write_image_list, "list.csv", source="image_folder", path=".", list="list.csv"),
    **{name: _source(
        write_masks, damage, source="segmentation_folder", path=".", images=".", masks=".", mask_suffix="_mask",
        classes=["a", "b"], list="list.txt",
    ) for name, damage in (("masks .png", "*_mask.png"), ("list of masked images .txt", "list.txt"))},
    "boxes of COCO": _source(write_boxes, "boxes.json", source="detection_folder", path=".", annotations="boxes.json"),
    "boxes of Pascal VOC": _source(
        write_boxes, "*.xml", source="detection_folder", path=".", annotations=".", format="voc"
    ),
    "boxes of YOLO": _source(write_boxes, "*.txt", source="detection_folder", path=".", annotations=".", format="yolo"),
    **{name: _source(write_sounds, damage, source="audio", path=".", list="list.csv", sampling_rate=8000)
       for name, damage in (("sounds .wav", "*.wav"), ("list of sounds .csv", "list.csv"))},
    "text": _source(write_text, source="text", path="a.txt", tokenizer="characters", length=16),
    "text, byte pairs": _source(
        write_text, source="text", path="a.txt", tokenizer={"type": "byte_pairs", "size": 280}, length=16
    ),
    "text with tokenizer.json": _source(
        write_tokenizer, "tokenizer.json", source="text", path="a.txt", length=16,
        tokenizer={"type": "tokenizer_json", "path": "tokenizer.json"},
    ),
    "documents": _source(
        write_documents, source="documents", path=["good.txt", "bad.txt"], documents="lines", tokenizer="words"
    ),
}  # fmt: skip
READERS |= real_models(MODELS)
