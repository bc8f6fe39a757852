"""The parts of the script of an exported model that read WAV files."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from netspec.data.audio import resampling

CHANNELS = {
    "mix": "Average all channels", "left": "Take the left channel", "right": "Take the right channel",
    "stereo": "Take both channels",
}  # fmt: skip
"""Sentences about the channels of a sound."""
SELECTIONS = {"mix": ".mean(axis=0, keepdims=True)", "left": "[:1]", "right": "[1:]", "stereo": ""}
"""Expressions that select the channels of a sound (channels, samples)."""
READ_SOUND = """\
def read_sound(name):
    content = Path(name).read_bytes()
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ValueError("not a WAV file")
    chunks, start = {}, 12
    while start + 8 <= len(content):
        size = int.from_bytes(content[start + 4 : start + 8], "little")
        chunks.setdefault(content[start : start + 4], content[start + 8 : start + 8 + size])
        start += 8 + size + size % 2
    if len(chunks.get(b"fmt ", b"")) < 16 or not chunks.get(b"data"):
        raise ValueError("the file holds no sound")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunks[b"fmt "][:16])
    if kind == 0xFFFE:  # WAVE_FORMAT_EXTENSIBLE
        kind = int.from_bytes(chunks[b"fmt "][24:26], "little")
    if (kind, bits) not in [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)] or not channels:
        raise ValueError(f"format {kind} with {bits} bits is not read; convert it to 16 bits (PCM)")
    raw = np.frombuffer(chunks[b"data"], np.uint8)
    raw = raw[: len(raw) // (channels * bits // 8) * (channels * bits // 8)]
    if kind == 3:
        samples = raw.view(f"<f{bits // 8}").astype(np.float32)
    elif bits == 8:  # 8-bit samples are unsigned
        samples = (raw.astype(np.float32) - 128) / 128
    else:  # the bytes become the upper ones of 32 bits
        wide = np.zeros((len(raw) * 8 // bits, 4), np.uint8)
        wide[:, 4 - bits // 8 :] = raw.reshape(-1, bits // 8)
        samples = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    return rate, samples.reshape(-1, channels).T
"""
"""A function of the script that returns the sampling rate and the samples, (channels, samples), of a WAV file."""


@dataclass(frozen=True)
class ScriptSound:
    """A sound that the script reads from a WAV file."""

    rate: int
    """Samples per second that the model takes."""
    resample: bool
    """Whether sounds at other rates are converted; otherwise they are an error."""
    channels: str
    """A key of `CHANNELS`."""

    @property
    def meaning(self) -> str:
        """Description of the input of the model."""
        return f"samples from -1 to 1, {self.rate:,} per second"

    @property
    def preparation(self) -> str:
        """The steps that turn a sound into an input of the model, as a sentence."""
        resampled = f", and resample it to {self.rate:,} samples per second" if self.resample else ""
        return f"{CHANNELS[self.channels]} of the sound{resampled}."

    def functions(self) -> Iterator[str]:
        """Yield the lines of the functions that read and resample sounds."""
        yield from ("", "", *READ_SOUND.splitlines())
        if self.resample:
            yield from ("", "", f"ZEROS, BETA = {resampling.ZEROS}, {resampling.BETA}")
            for function in (resampling.reduced_ratio, resampling.resampled, resampling.filter_phases):
                yield from ("", "", *inspect.getsource(function).splitlines())

    def read(self) -> list[str]:
        """Return the lines that read the file `name` as `netspec predict` does."""
        lines = ["rate, sound = read_sound(name)"]
        if self.channels != "mix":
            lines += ["if len(sound) != 2:", '    raise ValueError(f"expected two channels, got {len(sound)}")']
        lines.append(f"sound = sound{SELECTIONS[self.channels]}")
        if self.resample:
            return [*lines, f"sound = resampled(sound, rate, {self.rate})"]
        reason = f"expected {self.rate} samples per second, got {{rate}}"
        return [*lines, f"if rate != {self.rate}:", f'    raise ValueError(f"{reason}")']

    def example(self) -> list[str]:
        """Return the lines of a short program that read a sound of 16 bits at the rate of the model."""
        return [
            f'with wave.open("sound.wav") as file:  # 16 bits, {self.rate} samples per second',
            '    samples = np.frombuffer(file.readframes(-1), "<i2").reshape(-1, file.getnchannels()).T / 32768',
        ]
