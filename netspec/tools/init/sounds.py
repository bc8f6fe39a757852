"""Folders of sounds, one for each class: their rates and lengths, and a convolutional net over mel spectrograms."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netspec.errors import InputError, listing
from netspec.tools.init.files import (
    NORMALIZATION,
    Files,
    class_folders,
    class_losses,
    comment,
    data_location,
    document,
    entry,
    files_of_classes,
    has_files,
    hold_out,
    items,
    name_of,
    nested_classes,
    patient_epochs,
    relative,
    training,
)

SUFFIXES = frozenset({".wav"})
BATCH = 32
BANDS = 40
HIGHEST_RATE = 16_000
"""Sampling rate, in Hz, that suffices for speech and most noises."""
LONGEST = 4.0
"""Maximum length of the clips that the net reads, in seconds."""
MAX_FILES, MAX_SECONDS = 1_000, 5.0
"""Limits of the sample that is read: files and seconds."""
RARE = 10
"""A class of fewer sounds than this is reported."""


@dataclass
class SoundSurvey:
    """Findings about a folder of sounds."""

    counts: dict[str, int]
    """Number of sounds of each class."""
    rates: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Lengths of the sounds of the sample."""
    unreadable: list[str] = field(default_factory=list)
    duplicates: int = 0

    @property
    def rate(self) -> int:
        """Sampling rate that the net reads, in Hz: the rate of most sounds, up to 16,000."""
        return min(self.rates.most_common(1)[0][0], HIGHEST_RATE)

    @property
    def length(self) -> int:
        """Number of samples that nine of ten sounds do not exceed, up to four seconds."""
        longest = sorted(self.seconds)[int(0.9 * (len(self.seconds) - 1))]
        return max(self.rate // 10, round(min(longest, LONGEST) * self.rate))


def has_sounds(folder: Path) -> bool:
    """Return whether a folder has class folders with sounds."""
    return any(has_files(child, SUFFIXES) for child in class_folders(folder))


def sound_files(path: Path, folder: Path, net: str) -> Files:
    """Return the files for a folder of sounds. Raises `InputError` for a single class, or if no sound can be read."""
    class_files = files_of_classes(path, "sounds", SUFFIXES)
    survey = _open_sample(class_files)
    if not survey.seconds:
        raise InputError(f"no sound in {path} can be read", expected="WAV files", got=listing(survey.unreadable, 3))
    files = Files("sound classification", "", "", *_findings(survey))
    files.warnings += nested_classes(path, class_files)
    files.net = _net(name_of(path), survey)
    files.train = _train(path, folder, net, survey)
    return files


def _open_sample(class_files: dict[str, list[Path]]) -> SoundSurvey:
    """Read a sample of the sounds of each class."""
    from netspec.data.audio.riff import read_sound

    survey = SoundSurvey({name: len(files) for name, files in class_files.items()})
    per_class = max(1, MAX_FILES // len(class_files))
    sample = [file for files in class_files.values() for file in files[:: max(1, len(files) // per_class)][:per_class]]
    seen: set[int] = set()
    deadline = time.monotonic() + MAX_SECONDS
    for file in sample:
        if time.monotonic() > deadline:
            break
        try:
            sound, samples = read_sound(file)
        except InputError as error:
            survey.unreadable.append(f"{file} ({error.problems[0].brief[:60]})")
            continue
        survey.rates[sound.rate] += 1
        survey.seconds.append(sound.frames / sound.rate)
        content = hash(samples.tobytes())
        survey.duplicates += content in seen
        seen.add(content)
    return survey


def _findings(survey: SoundSurvey) -> tuple[list[str], list[str]]:
    counts = [f"{name} {count:,}" for name, count in survey.counts.items()]
    rates = ", ".join(f"{rate:,}" for rate in sorted(survey.rates)[:5])
    shortest, longest = min(survey.seconds), max(survey.seconds)
    findings = [
        f"{sum(survey.counts.values()):,} sounds of {len(survey.counts)} classes: {listing(counts, 10)}",
        f"{shortest:.2g} to {longest:.2g} s at {rates} Hz, in a sample of {len(survey.seconds):,}",
    ]
    warnings = []
    if survey.unreadable:
        warnings.append(f"sounds that cannot be read, and are left out: {listing(survey.unreadable, 3)}")
    if survey.duplicates:
        warnings.append(f"copies of other sounds: {survey.duplicates:,} of {len(survey.seconds):,}")
    if rare := [name for name, count in survey.counts.items() if count < RARE]:
        warnings.append(f"classes of fewer than {RARE} sounds: {listing(rare, 5)}")
    return findings, warnings


def _spectrogram(survey: SoundSurvey) -> tuple[dict[str, Any], int]:
    """Return the transform to a spectrogram of frames of 25 ms every 10 ms, and the number of frames."""
    window, stride = max(2, survey.rate // 40), max(1, survey.rate // 100)
    transform = {
        "type": "MelSpectrogram", "fft_length": 2 ** (window - 1).bit_length(), "sequence_length": window,
        "sequence_stride": stride, "sampling_rate": survey.rate, "num_mel_bins": BANDS,
    }  # fmt: skip
    return transform, 1 + survey.length // stride


def _net(name: str, survey: SoundSurvey) -> str:
    frames = _spectrogram(survey)[1]
    layers: list[tuple[dict[str, Any], str]] = []
    for filters in (32, 64, 128):
        conv = {"type": "Conv2D", "filters": filters, "kernel_size": 3, "padding": "same", "use_bias": False}
        layers += [(layer, "") for layer in (conv, NORMALIZATION, {"type": "ReLU"})]
        if filters < 128 and frames >= 8:
            layers.append(({"type": "MaxPooling2D", "pool_size": 2}, ""))
    layers += [
        ({"type": "GlobalAveragePooling2D"}, "when a sound occurs matters little"),
        ({"type": "Dropout", "rate": 0.3}, "against overfitting"),
        ({"name": "logits", "type": "Dense", "units": len(survey.counts)}, "one output for each class"),
    ]
    return document([
        *comment(f"A small convolutional net for {len(survey.counts)} classes of sounds."),
        "netspec: 1",
        f"name: {name}",
        "inputs:",
        *entry("audio", {"shape": [1, BANDS, frames]}, "mel bands and frames of 10 ms", 2),
        *entry("label", {"shape": [], "dtype": "int32"}, "", 2),
        "layers:",
        *items(layers, 2),
        *class_losses(),
    ])  # fmt: skip


def _train(path: Path, folder: Path, net: str, survey: SoundSurvey) -> str:
    total = sum(survey.counts.values())
    split, why = hold_out(total, stratify="label")
    lines = [
        *comment(f"Trains the net in {net} on the sounds in {data_location(path, folder)}."),
        "netspec: 1", f"net: {net}", "data:", "  train:", "    source: audio",
        *entry("path", relative(path, folder), "a folder for each class", 4),
        *entry("classes", list(survey.counts), "labels 0, 1, … in this order", 4),
        *entry("sampling_rate", survey.rate, "samples per second", 4),
        *entry("resample", True, "sounds at other rates are converted", 4),
    ]  # fmt: skip
    if survey.unreadable:
        lines += entry("on_error", "skip", "some sounds cannot be read: they are left out, and counted in the log", 4)
    padding = {"type": "Padding", "length": survey.length, "truncating": "random"}
    lines += [
        *entry("split", split, why, 4), *entry("batch_size", BATCH, "", 4), *entry("shuffle", True, "", 4),
        "    transforms:",
        *items([
            (padding, f"{survey.length / survey.rate:.2g} s: nine of ten sounds fit (at most {LONGEST:g} s)"),
            (_spectrogram(survey)[0], "frames of 25 ms, one every 10 ms"),
            ({"type": "Normalization", "adapt": True}, "mean and variance of the training part"),
        ], 6),
    ]  # fmt: skip
    patience = patient_epochs(total, BATCH, 8)
    return document([*lines, *training(monitor="loss", epochs=max(40, 6 * patience), patience=patience)])
