"""WAV files: RIFF chunks, and samples in the common formats as floats from -1 to 1.

The formats are those of Microsoft's "Multiple channel audio data and WAVE files" (WAVE_FORMAT_EXTENSIBLE) and of
"Multimedia Programming Interface and Data Specifications 1.0" (1991). Headers are not trusted: the size that a chunk
claims is compared with the size of the file before anything is allocated.
"""

from __future__ import annotations

from os import SEEK_END
from pathlib import Path
from struct import unpack
from typing import BinaryIO, NamedTuple

import numpy as np

from netspec.data.base import Array
from netspec.data.files import existing, explain_read_errors
from netspec.errors import InputError, counted, kind_of_file

MAX_BYTES = 2**30
"""Maximum size of the samples of a file."""
_MAX_CHANNELS, _MAX_RATE, _MAX_CHUNKS = 64, 2**22, 2**12
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_GUID = bytes.fromhex("0000 0000 1000 8000 00aa 0038 9b71")
"""Bytes that follow the format number in the GUID of an extensible header."""
_NAMES = {2: "Microsoft ADPCM", 6: "A-law", 7: "µ-law", 17: "IMA ADPCM", 49: "GSM 6.10", 85: "MP3"}
_BITS = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}


class Sound(NamedTuple):
    """Header fields of a WAV file."""

    path: Path
    kind: int
    """1: integers, 3: floats."""
    bits: int
    """Bits per sample of one channel."""
    channels: int
    rate: int
    """Samples per second."""
    start: int
    """Offset of the first sample byte."""
    frames: int
    """Number of samples per channel."""


def read_sound(path: Path) -> tuple[Sound, Array]:
    """Return the header and the samples, (channels, frames) of float32. Raises `InputError` for a damaged file."""
    with explain_read_errors(path), existing(path).open("rb") as file:
        sound = _header(path, file)
        file.seek(sound.start)
        raw = file.read(sound.frames * sound.channels * sound.bits // 8)
    return sound, _numbers(sound, raw).reshape(-1, sound.channels).T


def with_silence(sound: Sound, content: bytes, start: int, stop: int) -> bytes:
    """Return the content of a WAV file with silence from frame `start` to `stop`."""
    frame = sound.channels * sound.bits // 8
    first, last = sound.start + start * frame, sound.start + stop * frame
    silent = b"\x80" if sound.bits == 8 else b"\x00"
    return content[:first] + silent * (last - first) + content[last:]


def _header(path: Path, file: BinaryIO) -> Sound:
    size = file.seek(0, SEEK_END)
    file.seek(0)
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        got = "RF64, for more than 4 GB" if head[:4] in (b"RF64", b"BW64") else kind_of_file(head)
        raise InputError(f"{path} is not a WAV file", expected="`RIFF`, a size, and `WAVE`", got=got)
    form: tuple[int, int, int, int] | None = None
    offset = 12
    for _ in range(_MAX_CHUNKS):
        file.seek(offset)
        head = file.read(8)
        if len(head) < 8:
            missing = "samples (no chunk `data`)" if form else "header (no chunk `fmt `)"
            raise InputError(f"{path} has no {missing}", got=f"{size:,} bytes without it")
        name, length = head[:4], int.from_bytes(head[4:], "little")
        offset += 8
        if name == b"fmt " and form is None:
            form = _format(path, file.read(min(length, 40)))
        elif name == b"data":
            if form is None:
                raise InputError(f"{path} has samples before their header", expected="a chunk `fmt ` before `data`")
            return _sound(path, form, offset, length, size)
        offset += length + length % 2
    raise InputError(f"{path} is damaged", expected=f"samples among the first {_MAX_CHUNKS:,} chunks")


def _format(path: Path, chunk: bytes) -> tuple[int, int, int, int]:
    """Return kind, bits, channels and rate from the chunk `fmt `."""
    if len(chunk) < 16:
        raise InputError(
            f"{path} is damaged",
            expected="a header of 16 bytes or more",
            got=f"a header of {counted(len(chunk), 'byte')}",
        )
    kind, channels, rate, _, block, bits = unpack("<HHIIHH", chunk[:16])
    if kind == _EXTENSIBLE and chunk[26:40] == _GUID:
        kind = int.from_bytes(chunk[24:26], "little")
    if kind not in _BITS:
        raise InputError(
            f"{path} has an unsupported compression",
            expected="integers (PCM) or floats",
            got=_NAMES.get(kind, f"format {kind:#x}"),
            hint="convert it, for example by `ffmpeg -i FILE -c:a pcm_s16le OTHER.wav`",
        )
    if not 0 < channels <= _MAX_CHANNELS or not 0 < rate <= _MAX_RATE or bits not in _BITS[kind]:
        raise InputError(
            f"{path} has an invalid header",
            expected=f"1 to {_MAX_CHANNELS} channels of {' or '.join(map(str, _BITS[kind]))} bits, "
            f"1 to {_MAX_RATE:,} samples a second",
            got=f"{counted(channels, 'channel')} of {bits} bits, {rate:,} a second",
        )
    if block != channels * bits // 8:
        raise InputError(
            f"{path} has a header that contradicts itself",
            expected=f"{channels * bits // 8} bytes for {counted(channels, 'channel')} of {bits} bits",
            got=str(block),
        )
    return kind, bits, channels, rate


def _sound(path: Path, form: tuple[int, int, int, int], start: int, length: int, size: int) -> Sound:
    """Return the sound whose samples begin at `start` and claim `length` bytes of a file of `size`."""
    kind, bits, channels, rate = form
    block = channels * bits // 8
    if length > size - start:
        raise InputError(
            f"{path} is cut short",
            expected=f"{length:,} bytes of samples",
            got=f"{size - start:,}",
            hint="a program that wrote into a pipe could not fill in the size: convert the file once more"
            if length >= 2**32 - 2**16
            else "download or record it again",
        )
    if length % block:
        raise InputError(
            f"{path} ends within a sample", expected=f"a multiple of {block} bytes of samples", got=f"{length:,}"
        )
    if not length:
        raise InputError(f"{path} holds no sound", expected="one sample or more")
    if length > MAX_BYTES:
        raise InputError(f"{path} is too long", expected=f"at most {MAX_BYTES:,} bytes of samples", got=f"{length:,}")
    return Sound(path, kind, bits, channels, rate, start, length // block)


def _numbers(sound: Sound, raw: bytes) -> Array:
    """Decode consecutive samples to float32; integers of n bits are divided by 2ⁿ⁻¹."""
    if sound.kind == _FLOAT:
        with np.errstate(over="ignore"):  # overflows to infinity, which the input check reports
            return np.frombuffer(raw, f"<f{sound.bits // 8}").astype(np.float32)
    if sound.bits == 8:  # the only unsigned format
        return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    if sound.bits == 24:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    return np.frombuffer(raw, f"<i{sound.bits // 8}").astype(np.float32) / np.float32(2 ** (sound.bits - 1))
