"""Any file that netspec can import, told apart by content, not by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from netspec.exchange.files import HEAD_BYTES, reading
from netspec.exchange.hdf5_format import MAGIC
from netspec.exchange.hdf5_import import import_hdf5
from netspec.exchange.imported import Imported
from netspec.exchange.onnx_import import import_onnx

WHAT = "an ONNX model, or weights or a checkpoint that netspec wrote (.h5)"


def import_model(path: str | Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Imported:
    """The net and the weights in a file of any format known here. Raises `InputError`."""
    with reading(path, WHAT) as (file, _):
        head = file.read(HEAD_BYTES)
    return import_hdf5(path) if head.startswith((MAGIC, b"\x89HDF")) else import_onnx(path, shapes)
