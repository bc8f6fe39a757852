"""`{type: MelSpectrogram}`: the power of a sound over time and over the mel scale."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from netspec.data.base import DamagedSamples, FieldType, SampleKeys, Samples, Transform, per_sample
from netspec.errors import InputError, Problem, SettingHint
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.spec import problem

Positive = Annotated[float, Field(gt=0)]


@TRANSFORMS.register
class MelSpectrogram(Transform):
    """Compute mel spectrograms of sounds: (…, samples) → (…, bins, frames) of float32.

    As Keras's layer: frames of `sequence_length` samples around every `sequence_stride`-th one (the sound is mirrored
    at its ends, so there are 1 + samples // stride frames), each multiplied by a Hann or Hamming window and padded with
    zeros to `fft_length`; |FFT| to the power `mag_exp`; triangular filters of height 1, evenly spaced on the mel scale
    of HTK, mel = 2595 log10(1 + f / 700); then decibels, 10 log10(max(x, min_power) / ref_power), at least the maximum
    of the sample (in Keras: of the batch) minus `top_db`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "n_fft": "use `fft_length`",
        "hop_length": "use `sequence_stride`",
        "win_length": "use `sequence_length`",
        "n_mels": "use `num_mel_bins`",
        "sample_rate": "use `sampling_rate`",
        "sr": "use `sampling_rate`",
        "f_min": "use `min_freq`",
        "f_max": "use `max_freq`",
        "power": "use `mag_exp`",
    }

    type: Literal["MelSpectrogram"] = "MelSpectrogram"
    fft_length: Annotated[int, Field(ge=2, le=2**20)] = 2048
    """Length of the FFT in samples."""
    sequence_stride: PositiveInt = 512
    """Distance between frames in samples."""
    sequence_length: PositiveInt | None = None
    """Length of the window in samples; by default `fft_length`."""
    window: Literal["hann", "hamming"] | None = "hann"
    """The window of each frame; null for none."""
    sampling_rate: PositiveInt = 16000
    """Sampling rate of the sound, in hertz."""
    num_mel_bins: PositiveInt = 128
    """Number of bands."""
    min_freq: Annotated[float, Field(ge=0)] = 20.0
    """Lower end of the lowest band, in hertz."""
    max_freq: Positive | None = None
    """Upper end of the highest band, in hertz; by default half of `sampling_rate`."""
    power_to_db: bool = True
    """Whether to convert the power to decibels."""
    top_db: Positive = 80.0
    """Lower bound of the decibels, relative to the loudest value of the sample."""
    mag_exp: Positive = 2.0
    """1: magnitude; 2: power."""
    min_power: Positive = 1e-10
    """Lower bound of the power before it is converted to decibels."""
    ref_power: Positive = 1.0
    """Power that corresponds to 0 decibels."""

    samples: ClassVar = ({"num_mel_bins": 64, "sequence_stride": 256},)
    example_split: ClassVar = {
        "source": "synthetic", "samples": 1000, "fields": {"audio": {"shape": [1, 16000]}}, "batch_size": 64,
    }  # fmt: skip

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if (self.sequence_length or 1) > self.fft_length:
            raise problem(
                "`sequence_length` is larger than `fft_length`",
                field="sequence_length",
                expected=f"at most {self.fft_length}",
                got=str(self.sequence_length),
            )
        top = self.max_freq or self.sampling_rate / 2
        if not self.min_freq < top <= self.sampling_rate / 2:
            raise problem(
                "the frequency range is not valid",
                field="max_freq" if self.max_freq else "min_freq",
                expected="0 ≤ min_freq < max_freq ≤ half of `sampling_rate`",
                got=f"{self.min_freq:g} to {top:g} Hz at a rate of {self.sampling_rate}",
            )
        return self

    def infer(self, field: FieldType) -> FieldType:
        """(…, samples) of any type → (…, bins, frames) of float32. Raises `InputError` for too short sounds."""
        if not field.shape:
            raise InputError("a single number is not a sound", expected="samples [length] or [channels, length]")
        size = field.shape[-1]
        if size is not None and size <= self.fft_length // 2:
            raise InputError(self._too_short(size))
        frames = None if size is None else 1 + size // self.sequence_stride
        return FieldType((*field.shape[:-1], self.num_mel_bins, frames), "float32")

    def _too_short(self, size: int) -> Problem:
        return Problem(
            "a sound is too short to be mirrored at its ends",
            expected=f"more than half of `fft_length` ({self.fft_length}) samples",
            got=str(size),
            hint=SettingHint(
                "pad sounds with `{type: Padding, length: …}` first, or use a smaller `fft_length`",
                data="pad the sound with zeros",
            ),
        )

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """x: (N, …, samples) → (N, …, bins, frames) of float32."""
        from netspec.data.transforms.spectra import mel_spectrogram

        sizes = [sound.shape[-1] for sound in batch]
        short = {row: [self._too_short(size)] for row, size in enumerate(sizes) if size <= self.fft_length // 2}
        if short:
            raise DamagedSamples(short)
        return per_sample(batch, lambda sounds: mel_spectrogram(self, sounds))
