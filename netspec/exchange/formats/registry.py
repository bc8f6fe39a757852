"""File formats for nets and weights: recognized by content when read, by suffix when written.

The functions of a format are given by name, so that its library is imported only when a file needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from netspec.errors import InputError, Problem, did_you_mean, kind_of_file, listing
from netspec.exchange.containers.protobuf import is_onnx
from netspec.exchange.containers.zip_archive import MAGIC, open_zip
from netspec.exchange.files import HEAD_BYTES, reading, sniff
from netspec.exchange.formats.caffe.recognizing import (
    is_hdf5_weights,
    is_mean,
    is_net,
    is_solver,
    is_solver_state,
    is_weights,
)
from netspec.exchange.formats.native.hdf5_file import is_own
from netspec.exchange.formats.native.npz import is_npz
from netspec.exchange.formats.native.safetensors import is_safetensors
from netspec.exchange.formats.pytorch.pickles import is_pytorch
from netspec.exchange.interface import CUT, Imported, ImportOptions, Target
from netspec.exchange.names import check_names
from netspec.files.damage import refuse_damage
from netspec.files.hdf5 import SIGNATURE, Hdf5File
from netspec.graph.graph import Graph
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec

Container = Literal["binary", "text", "zip", "hdf5", ""]


@dataclass(frozen=True)
class Exportable:
    """What a writer gets: a net, its weights, and its training if there is one."""

    net: NetSpec
    arrays: Mapping[str, NDArray[Any]]
    """Parameters and statistics by name; empty for a preflight, which needs only the net."""
    graph_for: Callable[[int], Graph]
    """The inference graph for a batch of this size; `named` has the value of each layer's output."""
    train: TrainSpec | None = None
    slots: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """States of the solver by name, if a checkpoint is written."""
    step: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Preprocessing of the samples, as netspec's own files record it."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export; `Format.options` are those that a format supports."""

    batch: int | None = None
    """The only batch size that the model takes; None: any."""
    opset: int | None = None
    """The operator set; None: the newest."""
    form: str | None = None
    """`training` for the net in training; None: for inference."""


@dataclass(frozen=True)
class Lost:
    """Parts of a net and its training that a format cannot express, known before there are weights."""

    problems: Sequence[Problem] = ()
    """Problems that prevent the export."""
    notes: Sequence[str] = ()
    """Notes on the export."""


@dataclass(frozen=True)
class Format:
    """A file format. Functions are given as `module:function`; an empty string means that the format has none."""

    name: str
    kind: str
    """The kind of file, for messages."""
    suffixes: tuple[str, ...]
    """Suffixes of file names for writing; the longest that fits decides."""
    recognizes: Callable[[bytes, Path], bool]
    """Whether a file has the structure of the format, by its first bytes and its content, whatever its name."""
    containers: tuple[Container, ...] = ("binary",)
    """Containers of its files: only a file in one of these can be a damaged file of this format."""
    read: str = ""
    """`(path, ImportOptions) -> Imported`, for a file that contains a net."""
    weights: str = ""
    """`(path, Target) -> {state: array}`, for weights to load into a net."""
    write: str = ""
    """`(path, Exportable) -> notes`; raises `InputError` with everything that the format cannot express."""
    refuse: str = ""
    """`(path, options)`, for a format that is recognized but never read: raises `InputError` with an alternative."""
    preflight: str = ""
    """`(Exportable without arrays, ExportOptions) -> Lost`; empty for a format that can express every net."""
    options: tuple[str, ...] = ()
    """The fields of `ExportOptions` that it supports."""
    import_options: tuple[str, ...] = ()
    """The fields of `ImportOptions` that it supports."""
    cuts: bool = False
    """Whether `read` applies `until` itself, so that dropped layers are never translated."""
    parts: str = ""
    """`(path) -> (path, path)`: the net and the weights written as `path`, if they are two files."""

    def reads(self, path: Path, options: ImportOptions) -> Imported:
        """The net and the weights in a file."""
        with refuse_damage(path, self.kind):
            imported: Imported = load_function(self.read or self.refuse)(path, options)
            check_names(path, [*imported.arrays, *imported.slots], self.kind)
        return imported

    def weights_for(self, path: Path, target: Target) -> dict[str, NDArray[Any]]:
        """The weights in a file, by the names of a net's states."""
        with refuse_damage(path, self.kind):
            arrays: dict[str, NDArray[Any]] = load_function(self.weights or self.refuse)(path, target)
        return arrays

    def writes(self, path: Path, exported: Exportable) -> tuple[str, ...]:
        """Write a file completely or not at all. Return notes for the user."""
        notes: tuple[str, ...] = load_function(self.write)(path, exported)
        return notes

    def parts_of(self, path: Path) -> tuple[Path, Path | None]:
        """The file with the net that was written as `path`, and the file with its weights if that is another."""
        paths: tuple[Path, Path | None] = load_function(self.parts)(path) if self.parts else (path, None)
        return paths

    def checks(self, exported: Exportable, options: ExportOptions) -> Lost:
        """Everything of the net and its training that would be lost in this format, whatever the weights."""
        lost: Lost = load_function(self.preflight)(exported, options) if self.preflight else Lost()
        return lost


def load_function(name: str) -> Callable[..., Any]:
    """Import a function of a format, given as `module:function` below `netspec.exchange.formats`."""
    module, _, name_in_module = name.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"netspec.exchange.formats.{module}"), name_in_module)
    return function


def _is_keras(head: bytes, path: Path) -> bool:
    if not head.startswith((MAGIC, SIGNATURE)):
        return False
    is_keras: bool = load_function("keras.importing.archive:is_keras")(head, path)
    return is_keras


OWN = "netspec"
"""The name of netspec's own format."""
ONNX = "onnx"
"""The name of the format whose files are verified in another program before they are written."""
_CAFFE = "caffe.writing.files:write_caffe"
_CAFFE_PREFLIGHT = "caffe.writing.files:preflight_caffe"
_KERAS_PREFLIGHT = "keras.exporting:preflight_keras"
_CAFFE_WEIGHTS = "caffe.load_into_net:weights_onto"
_CAFFE_OPTIONS = ("shapes", "weights", "phase", "level", "stages", *CUT)
_CAFFE_PARTS = "caffe.writing.files:parts_of"

FORMATS: tuple[Format, ...] = (
    Format(
        OWN, "weights or a checkpoint that netspec wrote (.h5)", (".h5",), is_own,
        read="native.hdf5_nets:import_hdf5", weights="native.hdf5_nets:weights_of",
        write="native.hdf5_nets:export_hdf5", import_options=CUT,
    ),
    Format(
        "safetensors", "a safetensors file (.safetensors)", (".safetensors",), is_safetensors,
        read="native.weight_files:import_safetensors",
        weights="native.weight_files:safetensors_for",
        write="native.weight_files:export_safetensors",
        preflight="native.weight_files:preflight_safetensors", import_options=CUT,
    ),
    Format(
        ONNX, "an ONNX model (.onnx)", (".onnx",), is_onnx,
        read="onnx.importing:import_onnx", write="onnx.exporting:write_onnx",
        preflight="onnx.exporting:preflight_onnx", options=("batch", "opset", "form"),
        import_options=("shapes", "values", *CUT), cuts=True,
    ),
    Format(
        "solverstate", "the state of a Caffe solver (.solverstate)", (".solverstate", ".solverstate.h5"),
        is_solver_state, ("binary", "hdf5"), refuse="caffe.solver.reading:refuse_state",
    ),
    Format(
        "binaryproto", "a Caffe mean image (.binaryproto)", (".binaryproto",), is_mean,
        refuse="caffe.reading:refuse_mean",
    ),
    Format(
        "keras", "a Keras model or its weights (.keras, .h5)", (".keras",), _is_keras, ("zip", "hdf5"),
        read="keras.importing:import_keras", weights="keras.importing.load_into_net:weights_of",
        write="keras.exporting:write_keras", preflight=_KERAS_PREFLIGHT, import_options=("shapes", *CUT),
        cuts=True,
    ),
    Format(
        "keras_weights", "weights of a Keras model (.weights.h5)", (".weights.h5",), _is_keras, ("hdf5",),
        write="keras.exporting:write_keras_weights", preflight=_KERAS_PREFLIGHT,
    ),
    Format(
        "caffe_solver", "a solver of Caffe's (.prototxt)", (), is_solver, ("text",),
        read="caffe.solver.reading:read_solver", import_options=("shapes", "weights"),
    ),
    Format(
        "caffe", "a net of Caffe's (.prototxt)", (".prototxt",), is_net, ("text",),
        read="caffe.reading:read_prototxt", write=_CAFFE, preflight=_CAFFE_PREFLIGHT,
        parts=_CAFFE_PARTS, import_options=_CAFFE_OPTIONS, cuts=True,
    ),
    Format(
        "caffemodel", "weights of Caffe's with their net (.caffemodel)", (".caffemodel",), is_weights,
        read="caffe.reading:read_caffemodel", weights=_CAFFE_WEIGHTS, write=_CAFFE,
        preflight=_CAFFE_PREFLIGHT, parts=_CAFFE_PARTS, import_options=_CAFFE_OPTIONS, cuts=True,
    ),
    Format(
        "caffemodel.h5", "weights of Caffe's (.caffemodel.h5)", (".caffemodel.h5",), is_hdf5_weights, ("hdf5",),
        read="caffe.reading:read_caffemodel", weights=_CAFFE_WEIGHTS, write=_CAFFE,
        preflight=_CAFFE_PREFLIGHT, parts=_CAFFE_PARTS, import_options=_CAFFE_OPTIONS, cuts=True,
    ),
    Format(
        "npz", "NumPy arrays (.npz)", (".npz",), is_npz, ("zip",),
        read="native.weight_files:import_npz", weights="native.weight_files:npz_for",
        write="native.weight_files:export_npz", import_options=CUT,
    ),
    Format(
        "pytorch", "a PyTorch file (.pt, .pth)", (".pt", ".pth"), is_pytorch, ("zip",),
        refuse="pytorch.pickles:refuse_pytorch",
    ),
)  # fmt: skip
"""Formats in the order in which they are tried: the strictest structures first."""


def format_of(path: str | Path) -> Format:
    """The format of a file by its structure; if several fit, its name decides.

    If the beginning of a file is damaged, its name decides among the formats that are still possible. Raises
    `InputError` for a file of an unknown format.
    """
    path = Path(path)
    readable = [format_ for format_ in FORMATS if format_.read or format_.weights or format_.refuse]
    with reading(path, "a model, or weights") as (file, _):
        head = file.read(HEAD_BYTES)
        container = _container(head)
        if container == "hdf5":
            Hdf5File(str(path), path, "a model, or weights").walk()  # report damage once, not for each format
        fitting = [format_ for format_ in readable if format_.recognizes(head, path)]
    named = [format_ for format_ in readable if path.name.endswith(format_.suffixes)]
    formats = [format_ for format_ in fitting if format_ in named] or fitting
    formats = formats or [format_ for format_ in named if container in format_.containers]
    if formats:
        return formats[0]
    if container == "zip":
        with open_zip(path, "a model, or weights"):
            pass
    description, hint = sniff(head)
    kinds = [format_.kind for format_ in readable if not format_.refuse]
    raise InputError(
        f"{path}: unrecognized file format", expected=listing(kinds, len(kinds)), got=description, hint=hint
    )


def _container(head: bytes) -> Container:
    """The container of a file by its first bytes; empty if no format uses it."""
    if head.startswith(MAGIC):
        return "zip"
    if head.startswith(SIGNATURE):
        return "hdf5"
    kind = kind_of_file(head)
    if sniff(head)[0] != kind:  # a web page, a Git LFS pointer
        return ""
    return "text" if kind == "a text file" else "binary" if kind.startswith("a file that begins") else ""


def format_to_write(path: str | Path) -> Format:
    """The format of a file name's suffix. Raises `InputError` if no writable format has it."""
    formats = [
        (suffix, format_)
        for format_ in FORMATS
        if format_.write
        for suffix in format_.suffixes
        if str(path).endswith(suffix)
    ]
    if not formats:
        suffixes = sorted({suffix for format_ in FORMATS if format_.write for suffix in format_.suffixes})
        raise InputError(
            f"{path}: its name says no format that is written",
            expected=f"a name ending in {listing(suffixes)}",
            hint="PyTorch loads .safetensors: `model.load_state_dict(safetensors.torch.load_file(path))`"
            if Path(path).suffix in (".pt", ".pth")
            else None,
        )
    return max(formats, key=lambda suffix_and_format: len(suffix_and_format[0]))[1]


def format_to_check(name: str, options: ExportOptions) -> Format:
    """The format of that name, to check whether a net can be exported to it. Raises `InputError`."""
    by_name = {format_.name: format_ for format_ in FORMATS if format_.write}
    if name not in by_name:
        raise InputError(
            f"unknown export format `{name}`", expected=f"one of {listing(list(by_name), len(by_name))}",
            hint=did_you_mean(name, by_name),
        )  # fmt: skip
    check_options(by_name[name], options)
    return by_name[name]


def check_options(format_: Format, options: ExportOptions) -> None:
    """Raise `InputError` for an option that the format does not support."""
    option_names = [field.name for field in fields(options) if getattr(options, field.name) is not None]
    unknown = [name for name in option_names if name not in format_.options]
    if unknown:
        raise InputError(f"a file of the format `{format_.name}` has no {listing(unknown)} to choose")
