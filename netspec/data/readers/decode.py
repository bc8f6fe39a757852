"""Decode images with Pillow: orientation, color mode, resizing, and a limit on the size.

Of a file with several images, such as an animated GIF, the first one is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import SEEK_END, BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from netspec.data.base import Array
from netspec.data.files import existing
from netspec.data.imaging.arrays import PillowImage, pixels
from netspec.errors import InputError, Problem

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
MAX_PIXELS = 2**26
"""Maximum of width × height: the header of a small file may claim an image that exhausts the memory."""

_ORIENTATION = 0x0112  # the EXIF tag; values from 5 to 8 swap width and height
_TAIL = 64
_END_MARKS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND", b"GIF8": b"\x00;"}
"""Bytes near the end of an intact file, by its first bytes: of JPEG, PNG and GIF."""
_MODES = {1: "L", 3: "RGB"}
_CLASS_INDICES = ", whose pixels are class indices from 0 to 255"


class ImageDecoder:
    """Decodes images to (H, W, channels) of uint8, resized to `size` (height, width) if it is set."""

    def __init__(self, channels: int, size: tuple[int, int] | None, interpolation: str) -> None:
        self._mode = _MODES[channels]
        self._size = size
        self._interpolation = Image.Resampling[interpolation.upper()]

    def read(self, source: Path | BytesIO, name: str) -> Array:
        """Decode the image in a file, named `name` in messages. Raises InputError if it is damaged."""
        return pixels(self.read_pillow(source, name))

    def read_pillow(self, source: Path | BytesIO, name: str) -> PillowImage:
        """Decode the image like `read`, as a `PillowImage`."""
        try:
            with _opened(source, name) as file:
                ImageOps.exif_transpose(file, in_place=True)  # else it copies images that need no change
                image = _eight_bit(file, self._mode, name)
                if self._size is not None and image.size != self._size[::-1]:
                    image = image.resize(self._size[::-1], self._interpolation)
                image.load()
        except InputError:
            raise
        except Exception as error:  # Pillow's decoders raise anything at all on damaged files
            raise _damaged(name, error) from None
        return PillowImage(image)


def read_mask(source: Path, name: str) -> Array:
    """Return the class index of each pixel, (H, W) of uint8, from an image with a palette or of gray levels.

    A GIF mask is read as gray levels, because programs may reorder the palette when they write it.
    Raises `InputError` if the file, named `name` in messages, is damaged or in color.
    """
    try:
        with _opened(source, name) as image:
            is_gif = image.format == "GIF"
            values = np.asarray(image.convert("RGB") if is_gif else image)
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise anything at all on damaged files
        raise _damaged(name, error) from None
    if values.ndim == 3 and values.shape[2] >= 3 and (values[..., :3] == values[..., :1]).all():
        values = values[..., 0]  # gray levels, saved as a color image
    if values.ndim != 2:
        raise InputError(
            f"mask {name} does not hold class indices",
            expected=f"an image {'' if is_gif else 'with a palette, or '}of gray levels{_CLASS_INDICES}",
            got="an image in color",
            hint="save it as PNG" if is_gif else "convert each color to the index of its class",
        )
    if values.dtype == np.uint8:
        return values
    with np.errstate(invalid="ignore"):  # NaN
        classes = values.astype(np.uint8)
    if (odd := values[classes != values]).size:
        raise InputError(
            f"mask {name} does not hold class indices",
            expected=f"an image with a palette, or of gray levels{_CLASS_INDICES}", got=f"a pixel of {odd.flat[0]}",
        )  # fmt: skip
    return classes


def upright_size(source: Path | BytesIO, name: str) -> tuple[int, int]:
    """Return the displayed height and width, from the header. Raises InputError if the image is damaged."""
    with _opened(source, name) as image:
        width, height = image.size
        try:
            # A PNG's tag may follow the pixels, which are then decoded: only read it if it makes a difference.
            may_be_rotated = width != height and image.format != "TIFF"  # Pillow swaps the size of TIFFs already
            is_rotated = may_be_rotated and image.getexif().get(_ORIENTATION, 1) >= 5
        except Exception as error:
            raise _damaged(name, error) from None
    return (width, height) if is_rotated else (height, width)


def damage_of(file: Path, name: str, *, is_mask: bool = False) -> Sequence[Problem]:
    """Return the problems that the header and the end of an image file show. Pixels are decoded if the end is missing.

    `name` is the name of the image in messages.
    """
    try:
        with _opened(file, name) as image:
            if not is_mask:
                check_range(image, name)
        if _ends_early(file):
            with _opened(file, name) as image:
                image.load()
    except InputError as error:
        return error.problems
    except Exception as error:  # Pillow's decoders raise anything at all on damaged files
        return _damaged(name, error).problems
    return ()


def check_range(image: Image.Image, name: str) -> None:
    """Raise `InputError` if the range of the pixels of an image is not known: they are signed, or have 32 bits."""
    if image.mode in ("I", "F"):
        raise InputError(
            f"image {name} has signed pixels, or pixels of 32 bits", expected="unsigned ones of 8 or 16 bits",
            hint="convert it, or train on arrays in .npy files",
        )  # fmt: skip


def _ends_early(file: Path) -> bool:
    """Return whether a file does not end as its format does. Some intact files have other bytes after the image."""
    with file.open("rb") as content:
        head, size = content.read(8), content.seek(0, SEEK_END)
        content.seek(max(0, size - _TAIL))
        tail = content.read()
    if head.startswith(b"RIFF"):
        return int.from_bytes(head[4:8], "little") + 8 > size
    if head.startswith(b"BM"):
        return int.from_bytes(head[2:6], "little") > size
    return not any(head.startswith(start) and mark in tail for start, mark in _END_MARKS.items())


def _opened(source: Path | BytesIO, name: str) -> Image.Image:
    """Open the image, read its header and check its size; pixels are not decoded yet."""
    if isinstance(source, Path):
        existing(source)  # opening a pipe would block
    try:
        image = Image.open(source, formats=FORMATS)
        width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(name, str(error)) from None
    except Exception as error:
        raise _damaged(name, error) from None
    if width * height > MAX_PIXELS:
        image.close()
        raise _too_large(name, f"{width} × {height} pixels")
    return image


def _too_large(name: str, got: str) -> InputError:
    return InputError(f"image {name} is too large", expected=f"at most {MAX_PIXELS:,} pixels", got=got)


def _damaged(name: str, error: Exception) -> InputError:
    unknown = isinstance(error, UnidentifiedImageError)
    if isinstance(error, OSError) and error.strerror:  # an error of the system, not of Pillow
        return InputError(f"image {name} cannot be read", got=error.strerror)
    return InputError(
        f"image {name} cannot be read",
        expected=f"an intact {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image",
        got="a file of another kind, or a damaged one" if unknown else str(error) or type(error).__name__,
    )


def _eight_bit(image: Image.Image, mode: str, name: str) -> Image.Image:
    """Convert an image to a mode of 8 bits. 16-bit gray keeps its upper eight bits; Pillow would clip it.

    Raises `InputError` if the range of the pixels is not known.
    """
    check_range(image, name)
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode == "P":
        image = image.convert("RGBA")  # Pillow warns of lost transparency if it converts directly to RGB
    return image if image.mode == mode else image.convert(mode)
