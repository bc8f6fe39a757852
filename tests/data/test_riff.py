"""WAV files: every sample format, and all kinds of errors."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.data.audio import riff
from netspec.data.audio.resampling import BETA, ZEROS, resampled
from netspec.data.audio.riff import read_sound
from netspec.errors import InputError
from tests.data.conftest import problems_of

GUID = bytes.fromhex("0000 0000 1000 8000 00aa 0038 9b71")


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def form(kind: int, bits: int, channels: int, rate: int = 8000, *, extensible: bool = False) -> bytes:
    block = channels * bits // 8
    header = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, channels, rate, rate * block, block, bits)
    return header + (struct.pack("<HHIH", 22, bits, 3, kind) + GUID if extensible else b"")


def wav(fmt: bytes, data: bytes, *before: bytes) -> bytes:
    body = b"WAVE" + chunk(b"fmt ", fmt) + b"".join(before) + chunk(b"data", data)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def encoded(samples: np.ndarray, kind: int, bits: int) -> bytes:
    """Return samples (channels, frames) from -1 to 1 as bytes of a file, encoded one by one."""
    flat = samples.T.ravel()
    if kind == 3:
        return flat.astype(f"<f{bits // 8}").tobytes()
    integers = [round(float(value) * 2 ** (bits - 1)) + (128 if bits == 8 else 0) for value in flat]
    return b"".join(value.to_bytes(bits // 8, "little", signed=bits != 8) for value in integers)


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("kind", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_every_format_gives_the_same_samples(tmp_path, kind, bits, channels, extensible):
    samples = np.array([[-1, -0.5, 0, 0.25, 0.5, 0.9921875]] * channels) * np.linspace(1, 0.5, channels)[:, None]
    samples = np.round(samples * 128) / 128  # representable in 8 bits
    fmt = form(kind, bits, channels, 44100, extensible=extensible)
    path = tmp_path / "a.wav"
    path.write_bytes(wav(fmt, encoded(samples, kind, bits), chunk(b"LIST", b"odd"), chunk(b"fact", b"1234")))
    sound, samples_read = read_sound(path)
    assert (sound.rate, sound.channels, sound.frames, sound.bits) == (44100, channels, 6, bits)
    assert samples_read.dtype == np.float32
    assert np.array_equal(samples_read, samples)


def test_files_written_by_the_standard_library_are_read(tmp_path):
    wave = pytest.importorskip("wave", reason="this Python reads no WAVE files")
    path = tmp_path / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(np.arange(-4, 4, dtype="<i2").tobytes())
    assert (read_sound(path)[1] * 2**15).tolist() == [[-4, -2, 0, 2], [-3, -1, 1, 3]]


MONO = form(1, 16, 1)
GOOD = wav(MONO, bytes(8))


@pytest.mark.parametrize(
    ("content", "message", "fragment"),
    [
        (b"", "is not a WAV file", "an empty file"),
        (b"ID3 and so on", "is not a WAV file", "a text file"),
        (b"RF64" + GOOD[4:], "is not a WAV file", "RF64, for more than 4 GB"),
        (GOOD[:12], "has no header (no chunk `fmt `)", "12 bytes without it"),
        (GOOD[:20], "is damaged", "a header of 0 bytes"),
        (GOOD[:36], "has no samples (no chunk `data`)", "36 bytes without it"),
        (GOOD[:-1], "is cut short", "7"),
        (wav(MONO, b"abc"), "ends within a sample", "3"),
        (wav(MONO, b""), "holds no sound", None),
        (wav(form(85, 16, 1), bytes(8)), "has an unsupported compression", "MP3"),
        (wav(form(0x1234, 16, 1), bytes(8)), "has an unsupported compression", "format 0x1234"),
        (wav(form(1, 12, 1), bytes(8)), "has an invalid header", "1 channel of 12 bits, 8,000 a second"),
        (wav(form(1, 16, 0), bytes(8)), "has an invalid header", "0 channels of 16 bits, 8,000 a second"),
        (wav(form(1, 16, 65), bytes(8)), "has an invalid header", "65 channels of 16 bits, 8,000 a second"),
        (wav(form(1, 16, 1, 0), bytes(8)), "has an invalid header", "1 channel of 16 bits, 0 a second"),
        (wav(MONO[:12] + struct.pack("<HH", 4, 16), bytes(8)), "has a header that contradicts itself", "4"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"data", bytes(8)), "has samples before their header", None),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"JUNK", b"") * 4097, "is damaged", None),
        (wav(MONO, b"")[:-4] + b"\xff\xff\xff\xff" + bytes(8), "is cut short", "8"),
    ],
)
def test_damaged_files_are_reported(tmp_path, content, message, fragment):
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_sound(path)
    (problem,) = error.value.problems
    assert problem.message.replace(str(tmp_path), ".") == f"./a.wav {message}"
    assert problem.got == fragment


@given(position=st.integers(0, 43), byte=st.integers(0, 255), cut=st.integers(0, 60))
def test_any_damage_is_read_or_reported(tmp_path_factory, position, byte, cut):
    content = bytearray(wav(MONO, bytes(range(16))))
    content[position] = byte
    path = tmp_path_factory.mktemp("riff") / "a.wav"
    path.write_bytes(content[:cut])
    readable(path)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_reported(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("riff") / "a.wav"
    path.write_bytes(b"RIFF\0\0\0\0WAVE" + content)
    readable(path)


def readable(path: Path) -> None:
    """Fail unless the file is read completely, or refused with its name."""
    message = ""
    try:
        sound, samples = read_sound(path)
        assert samples.shape == (sound.channels, sound.frames)
    except InputError as error:
        message = str(error)
    assert not message or str(path) in message


def test_a_file_longer_than_memory_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(riff, "MAX_BYTES", 7)
    path = tmp_path / "a.wav"
    path.write_bytes(GOOD)
    with pytest.raises(InputError) as error:
        read_sound(path)
    assert problems_of(error, tmp_path) == (
        "error: ./a.wav is too long\n  expected: at most 7 bytes of samples\n  got: 8"
    )


def slowly(sound: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """Resample by the formula, with all inserted zeros, for rates without a common divisor."""
    half = ZEROS * max(rate, new_rate)
    positions = np.arange(-half, half + 1)
    weights = np.sinc(positions / max(rate, new_rate)) * np.kaiser(2 * half + 1, BETA)
    weights *= new_rate / weights.sum()
    spread = np.zeros(len(sound) * new_rate)
    spread[::new_rate] = sound
    return np.convolve(spread, weights)[half : half + len(spread) : rate]


@pytest.mark.parametrize(("rate", "new_rate"), [(1, 2), (2, 1), (3, 2), (160, 441), (441, 160)])
@pytest.mark.parametrize("frames", [1, 7, 300])
def test_resampling_matches_the_formula(rate, new_rate, frames):
    sound = np.random.default_rng(frames).normal(size=(2, frames)).astype(np.float32)
    actual = resampled(sound, rate * 100, new_rate * 100)
    for channel, other in zip(actual, sound, strict=True):
        # a sinc with 21 zeros: sums of some dozens of products in float32
        np.testing.assert_allclose(channel, slowly(other, rate, new_rate), atol=2e-6)


def test_tones_above_the_new_rate_are_removed():
    time = np.arange(4410) / 44100
    for hertz, level in ((1000, 1.0), (15000, 0.0)):
        samples = resampled(np.sin(2 * np.pi * hertz * time, dtype=np.float32)[None], 44100, 16000)[0, 100:-100]
        assert abs(float(np.sqrt(2 * np.mean(samples**2))) - level) < 0.01
