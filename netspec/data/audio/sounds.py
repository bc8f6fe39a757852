"""Sound files as samples of different lengths, read when they are requested."""

from __future__ import annotations

from pathlib import Path

from netspec.data.audio.resampling import MAX_STRETCH, MAX_TERM, reduced_ratio, resampled
from netspec.data.audio.riff import read_sound
from netspec.data.base import Array
from netspec.data.readers.file_samples import ListedFiles, Listing
from netspec.errors import InputError, SettingHint, counted

_OUTPUT_CHANNELS = {"mix": 1, "left": 1, "right": 1, "stereo": 2}
"""Number of output channels, by the option `channels`."""


class SoundFiles(ListedFiles["Array"]):
    """The sounds of a listing: `audio` (channels, None) of float32, and `label`, if there are labels."""

    def __init__(self, listing: Listing, *, sampling_rate: int, resample: bool, channels: str, skip: bool) -> None:
        super().__init__(listing, "audio", (_OUTPUT_CHANNELS[channels], None), "float32", skip=skip)
        self._rate, self._resample, self._channels = sampling_rate, resample, channels

    def read_one(self, file: Path, name: str) -> Array:
        """Read a sound, (channels, samples), resampled to the requested rate."""
        sound, samples = read_sound(file)
        if sound.rate != self._rate and not self._resample:
            raise InputError(
                f"sound {name} has the wrong sampling rate",
                expected=f"{self._rate:,} samples a second, as in the training data",
                got=f"{sound.rate:,}",
                hint=SettingHint(
                    "`resample: true` brings every sound to that rate",
                    settings={"resample": True},
                    purpose="to resample sounds",
                    data="resample the sound",
                ),
            )
        if max(reduced_ratio(sound.rate, self._rate)) > MAX_TERM or self._rate > MAX_STRETCH * sound.rate:
            lowest = -(-self._rate // MAX_STRETCH)
            raise InputError(
                f"sound {name} cannot be resampled to {self._rate:,} samples a second",
                expected=f"at least {lowest:,} samples a second, and a ratio of the two rates with "
                f"terms up to {MAX_TERM:,}",
                got=f"{sound.rate:,} samples a second",
            )
        return resampled(self._chosen(samples, name), sound.rate, self._rate)

    def _chosen(self, samples: Array, name: str) -> Array:
        """Return the selected channels of samples (channels, frames)."""
        if self._channels == "mix":
            mean: Array = samples.mean(axis=0, keepdims=True)
            return mean
        if len(samples) != 2:
            raise InputError(
                f"sound {name} has no `{self._channels}`",
                expected="two channels",
                got=counted(len(samples), "channel"),
                hint=SettingHint(
                    "`channels: mix` averages all channels",
                    settings={"channels": "mix"},
                    purpose="to average all channels",
                    data="send a sound of two channels",
                ),
            )
        return {"left": samples[:1], "right": samples[1:], "stereo": samples}[self._channels]
