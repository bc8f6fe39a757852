"""The formats of files that nets and weights are exchanged in: told apart by content when read, by suffix when written.

The functions are named, not imported: a format's library loads when a file of it is met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.exchange.caffe.recognizing import (
    is_hdf5_weights,
    is_mean,
    is_net,
    is_solver,
    is_solver_state,
    is_weights,
)
from netspec.exchange.files import HEAD_BYTES, reading, sniff
from netspec.exchange.hdf5_format import MAGIC
from netspec.exchange.npz import is_npz
from netspec.exchange.safetensors import is_safetensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.exchange.imported import Imported, ImportOptions, Target
    from netspec.graph.graph import Graph
    from netspec.schema.net import NetSpec
    from netspec.schema.train import TrainSpec


@dataclass(frozen=True)
class Exportable:
    """A net with its weights, as writers are given it."""

    net: NetSpec
    arrays: Mapping[str, NDArray[Any]]
    """Parameters and statistics by name; none where only what can be said of the net is asked for."""
    graph_for: Callable[[int], Graph]
    """The inference graph for a batch of this size; `named` has the value of each layer's output."""
    train: TrainSpec | None = None
    slots: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """States of the solver by name, where a checkpoint is written."""
    step: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)
    """What was done to the samples before the net, as netspec's own files say it."""


@dataclass(frozen=True)
class ExportOptions:
    """What a user may ask of a file that is written; a format that knows an option not is told by its `options`."""

    batch: int | None = None
    """The only batch size that it takes; None: any."""
    opset: int | None = None
    """The operator set; None: the newest."""
    form: str | None = None
    """`training` for the net as it is in training; None: as it is used."""


@dataclass(frozen=True)
class Lost:
    """What a format can't say of a net and its training, known before there are weights."""

    problems: Sequence[Problem] = ()
    """What keeps the net from being written."""
    notes: Sequence[str] = ()
    """What is told when it is written."""


@dataclass(frozen=True)
class Format:
    """A format. Functions are given as `module:function`; an empty one says that the format does not do that."""

    name: str
    what: str
    """What a file of it is, for messages."""
    suffixes: tuple[str, ...]
    """Ends of names, for writing: the longest that fits decides."""
    recognizes: Callable[[bytes, Path], bool]
    """Whether a file is one, by its first bytes, or by a look into it."""
    read: str = ""
    """`(path, ImportOptions) -> Imported`, of a file that says the net."""
    weights: str = ""
    """`(path, Target) -> {state: array}`, of a file that holds weights alone."""
    write: str = ""
    """`(path, Exportable) -> notes`; raises `InputError` with all that the format can't say."""
    preflight: str = ""
    """`(Exportable without arrays, ExportOptions) -> Lost`; an empty one of a format that says every net."""
    options: tuple[str, ...] = ()
    """The fields of `ExportOptions` that it knows."""
    given: tuple[str, ...] = ()
    """The fields of `ImportOptions` that it knows."""

    parts: str = ""
    """`(path) -> (path, path)`: the net and the weights of what was written as `path`, where they are two files."""

    def reads(self, path: Path, options: ImportOptions) -> Imported:
        """The net and the weights in a file."""
        found: Imported = _function(self.read)(path, options)
        return found

    def weights_for(self, path: Path, target: Target) -> dict[str, NDArray[Any]]:
        """The weights in a file, by the names of a net's states."""
        found: dict[str, NDArray[Any]] = _function(self.weights)(path, target)
        return found

    def writes(self, path: Path, made: Exportable) -> tuple[str, ...]:
        """Write a file, whole or not at all; what the user should know of it."""
        found: tuple[str, ...] = _function(self.write)(path, made)
        return found

    def parts_of(self, path: Path) -> tuple[Path, Path | None]:
        """The file that says the net that was written as `path`, and that of its weights, if it is another."""
        found: tuple[Path, Path | None] = _function(self.parts)(path) if self.parts else (path, None)
        return found

    def checks(self, made: Exportable, options: ExportOptions) -> Lost:
        """Everything that would be lost of the net and its training, whatever its weights, if it were written so."""
        found: Lost = _function(self.preflight)(made, options) if self.preflight else Lost()
        return found


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _is_netspec(head: bytes, path: Path) -> bool:
    return head.startswith(MAGIC)


def _is_onnx(head: bytes, path: Path) -> bool:
    return head.startswith(b"\x08")  # `ir_version`, the field that a model begins with


def _is_keras(head: bytes, path: Path) -> bool:
    if not head.startswith((b"PK", b"\x89HDF")):
        return False
    found: bool = _function("netspec.exchange.keras_import.archive:is_keras")(head, path)
    return found


OWN = "netspec"
"""The name of netspec's own format."""
ONNX = "onnx"
"""The name of the format whose files are compared in another program before they are written."""
_CAFFE = "netspec.exchange.caffe.writing.files:write_caffe"
_CAFFE_PREFLIGHT = "netspec.exchange.caffe.writing.files:preflight_caffe"
_KERAS_PREFLIGHT = "netspec.exchange.keras_export:preflight_keras"
_CAFFE_WEIGHTS = "netspec.exchange.caffe.laying:weights_onto"
_CAFFE_GIVEN = ("shapes", "weights", "phase", "level", "stages")
_CAFFE_PARTS = "netspec.exchange.caffe.writing.files:parts_of"

FORMATS: tuple[Format, ...] = (
    Format(
        OWN, "weights or a checkpoint that netspec wrote (.h5)", (".h5",), _is_netspec,
        read="netspec.exchange.hdf5_import:import_hdf5", weights="netspec.exchange.hdf5_import:weights_of",
        write="netspec.exchange.hdf5_import:export_hdf5",
    ),
    Format(  # before ONNX, whose models begin alike
        "solverstate", "the state of a Caffe solver (.solverstate)", (".solverstate", ".solverstate.h5"),
        is_solver_state, read="netspec.exchange.caffe.solving.reading:refuse_state",
    ),
    Format(
        "binaryproto", "a mean image of Caffe's (.binaryproto)", (".binaryproto",), is_mean,
        read="netspec.exchange.caffe.reading:refuse_mean",
    ),
    Format(
        ONNX, "an ONNX model (.onnx)", (".onnx",), _is_onnx,
        read="netspec.exchange.onnx_import:import_onnx", write="netspec.exchange.onnx_export:write_onnx",
        preflight="netspec.exchange.onnx_export:preflight_onnx", options=("batch", "opset", "form"),
        given=("shapes", "values"),
    ),
    Format(
        "keras", "a Keras model or its weights (.keras, .h5)", (".keras",), _is_keras,
        read="netspec.exchange.keras_import:import_keras", weights="netspec.exchange.keras_import.onto:weights_of",
        write="netspec.exchange.keras_export:write_keras", preflight=_KERAS_PREFLIGHT, given=("shapes",),
    ),
    Format(
        "keras_weights", "weights of a Keras model (.weights.h5)", (".weights.h5",), _is_keras,
        write="netspec.exchange.keras_export:write_keras_weights", preflight=_KERAS_PREFLIGHT,
    ),
    Format(
        "caffe_solver", "a solver of Caffe's (.prototxt)", (), is_solver,
        read="netspec.exchange.caffe.solving.reading:read_solver", given=("shapes", "weights"),
    ),
    Format(
        "caffe", "a net of Caffe's (.prototxt)", (".prototxt",), is_net,
        read="netspec.exchange.caffe.reading:read_prototxt", write=_CAFFE, preflight=_CAFFE_PREFLIGHT,
        parts=_CAFFE_PARTS, given=_CAFFE_GIVEN,
    ),
    Format(
        "caffemodel", "weights of Caffe's with their net (.caffemodel)", (".caffemodel",), is_weights,
        read="netspec.exchange.caffe.reading:read_caffemodel", weights=_CAFFE_WEIGHTS, write=_CAFFE,
        preflight=_CAFFE_PREFLIGHT, parts=_CAFFE_PARTS, given=_CAFFE_GIVEN,
    ),
    Format(
        "caffemodel.h5", "weights of Caffe's (.caffemodel.h5)", (".caffemodel.h5",), is_hdf5_weights,
        read="netspec.exchange.caffe.reading:read_caffemodel", weights=_CAFFE_WEIGHTS, write=_CAFFE,
        preflight=_CAFFE_PREFLIGHT, parts=_CAFFE_PARTS, given=_CAFFE_GIVEN,
    ),
    Format(
        "npz", "NumPy arrays (.npz)", (".npz",), is_npz,
        read="netspec.exchange.weight_files:import_npz", weights="netspec.exchange.weight_files:npz_for",
        write="netspec.exchange.weight_files:export_npz",
    ),
    Format(
        "safetensors", "a safetensors file (.safetensors)", (".safetensors",), is_safetensors,
        read="netspec.exchange.weight_files:import_safetensors",
        weights="netspec.exchange.weight_files:safetensors_for",
        write="netspec.exchange.weight_files:export_safetensors",
        preflight="netspec.exchange.weight_files:preflight_safetensors",
    ),
)  # fmt: skip
"""In the order in which they are asked."""


def format_of(path: str | Path) -> Format:
    """The format of a file, by its content. Raises `InputError` for one that is none of those known here."""
    with reading(path, "a model, or weights") as (file, _):
        head = file.read(HEAD_BYTES)
    for one in FORMATS:
        if one.recognizes(head, Path(path)):
            return one
    for one in FORMATS:  # damage at the start: the format that its name speaks of says more
        if one.read and str(path).endswith(one.suffixes):
            return one
    what, hint = sniff(head)
    whats = [one.what for one in FORMATS if one.read or one.weights]
    expected = listing(whats, len(whats))
    raise InputError(f"{path} is of no format known here", expected=expected, got=what, hint=hint)


def format_to_write(path: str | Path) -> Format:
    """The format that a file's name asks for. Raises `InputError` where no writable one ends so."""
    found = [(suffix, one) for one in FORMATS if one.write for suffix in one.suffixes if str(path).endswith(suffix)]
    if not found:
        known = sorted({suffix for one in FORMATS if one.write for suffix in one.suffixes})
        raise InputError(
            f"{path}: its name says no format that is written", expected=f"a name ending in {listing(known)}"
        )
    return max(found, key=lambda pair: len(pair[0]))[1]


def format_to_check(name: str, options: ExportOptions) -> Format:
    """The format of that name, which nets are checked for before they are trained. Raises `InputError`."""
    known = {one.name: one for one in FORMATS if one.write}
    if name not in known:
        raise InputError(
            f"there is no format `{name}` to export to", expected=f"one of {listing(list(known), len(known))}",
            hint=did_you_mean(name, known),
        )  # fmt: skip
    check_options(known[name], options)
    return known[name]


def check_options(format_: Format, options: ExportOptions) -> None:
    """Raise `InputError` where an option is given that the format does not know."""
    given = [one.name for one in fields(options) if getattr(options, one.name) is not None]
    unknown = [name for name in given if name not in format_.options]
    if unknown:
        raise InputError(f"a file of the format `{format_.name}` has no {listing(unknown)} to choose")
