"""Sounds of classes, in folders or a list: their rates and lengths, and a convolutional net over mel spectrograms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netspec.data.file_kinds import SOUNDS
from netspec.errors import InputError, listing
from netspec.tools.init.class_folders import (
    NO_LISTS,
    ClassFiles,
    class_files,
    rare_class_warnings,
    split_entry,
    training_folder,
)
from netspec.tools.init.convolutions import convolution_stages
from netspec.tools.init.files import (
    Duplicates,
    Files,
    class_losses,
    document,
    entry,
    explained_entries,
    items,
    most_epochs,
    nine_of_ten,
    patient_epochs,
    training,
)
from netspec.tools.init.lists import listed_class_files
from netspec.tools.init.project import Project
from netspec.tools.init.search_space import DROPOUT

BATCH = 32
BANDS = 40
WIDTHS = (32, 64, 128)
"""Channels of the stages of convolutions."""
HIGHEST_RATE = 16_000
"""Sampling rate, in Hz, that suffices for speech and most noises."""
LONGEST = 4.0
"""Maximum length of the clips that the net reads, in seconds."""
MAX_FILES, MAX_BYTES = 1_000, 2**28
"""Limits of the sample that is read: files and bytes, which take some seconds."""
MIN_SOUNDS_PER_CLASS = 10
"""A class of fewer sounds than this is reported."""


@dataclass
class SoundSurvey:
    """Findings about a folder of sounds."""

    files: ClassFiles
    rates: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Lengths of the sounds of the sample."""
    unreadable: list[str] = field(default_factory=list)
    duplicates: Duplicates = field(default_factory=lambda: Duplicates("sounds"))

    @property
    def rate(self) -> int:
        """Sampling rate that the net reads, in Hz: the rate of most sounds, up to 16,000."""
        return min(self.rates.most_common(1)[0][0], HIGHEST_RATE)

    @property
    def length(self) -> int:
        """Number of samples that nine of ten sounds do not exceed, up to four seconds."""
        return max(self.rate // 10, round(min(nine_of_ten(self.seconds), LONGEST) * self.rate))


def sound_files(project: Project, lists: Mapping[str, Path] = NO_LISTS) -> Files:
    """Return the files for sounds in class folders or `lists`.

    Raises `InputError` for a single class, or if no sound can be read.
    """
    path = project.data
    survey = _open_sample(listed_class_files(lists, SOUNDS) if lists else class_files(training_folder(path), SOUNDS))
    if not survey.seconds:
        raise InputError(f"no sound in {path} can be read", expected="WAV files", got=listing(survey.unreadable, 3))
    files = Files("audio classification", "", "", *_findings(survey))
    files.net = _net(project, survey)
    files.train = _train(project, survey)
    return files


def _open_sample(files: ClassFiles) -> SoundSurvey:
    """Read a sample of the sounds of each class."""
    from netspec.data.audio.riff import read_sound

    survey = SoundSurvey(files)
    read = 0
    for file in files.sample(MAX_FILES):
        if read > MAX_BYTES:
            break
        try:
            sound, samples = read_sound(file)
        except InputError as error:
            survey.unreadable.append(f"{file} ({error.problems[0].brief[:60]})")
            continue
        read += samples.nbytes
        survey.rates[sound.rate] += 1
        survey.seconds.append(sound.frames / sound.rate)
        survey.duplicates.add(hash(samples.tobytes()), str(file), files.class_of(file))
    return survey


def _findings(survey: SoundSurvey) -> tuple[list[str], list[str]]:
    rates = ", ".join(f"{rate:,}" for rate in sorted(survey.rates)[:5])
    lengths = dict.fromkeys(f"{seconds:.2g}" for seconds in (min(survey.seconds), max(survey.seconds)))
    findings = [
        survey.files.summary,
        f"{' to '.join(lengths)} s at {rates} Hz, in a sample of {len(survey.seconds):,}",
    ]
    warnings = []
    if survey.unreadable:
        warnings.append(f"sounds that cannot be read, and are left out: {listing(survey.unreadable, 3)}")
    warnings += survey.duplicates.warnings()
    warnings += rare_class_warnings(survey.files.counts, MIN_SOUNDS_PER_CLASS, "sounds")
    return findings, [*warnings, *survey.files.nested_warnings(), *survey.files.other_warnings()]


def _spectrogram(survey: SoundSurvey) -> tuple[dict[str, Any], int]:
    """Return the transform to a spectrogram of frames of 25 ms every 10 ms, and the number of frames."""
    window, stride = max(2, survey.rate // 40), max(1, survey.rate // 100)
    transform = {
        "type": "MelSpectrogram", "fft_length": 2 ** (window - 1).bit_length(), "sequence_length": window,
        "sequence_stride": stride, "sampling_rate": survey.rate, "num_mel_bins": BANDS,
    }  # fmt: skip
    return transform, 1 + survey.length // stride


def _net(project: Project, survey: SoundSurvey) -> str:
    frames = _spectrogram(survey)[1]
    stages = convolution_stages(WIDTHS, len(WIDTHS) - 1 if frames >= 8 else 0, 1, project.space)
    dropout = project.space.net_variable("dropout", 0.3, DROPOUT, "share of values set to 0")
    layers: list[tuple[dict[str, Any], str]] = [
        ({"type": "GlobalAveragePooling2D"}, "when a sound occurs matters little"),
        ({"type": "Dropout", "rate": dropout}, "against overfitting"),
        ({"name": "logits", "type": "Dense", "units": len(survey.files.by_class)}, "one output for each class"),
    ]
    description = f"A small convolutional net for {len(survey.files.by_class)} classes of sounds."
    return document([
        *project.net_head(description),
        *entry("audio", {"shape": [1, BANDS, frames]}, "mel bands and frames of 10 ms", 2),
        *entry("label", {"shape": [], "dtype": "int32"}, "", 2),
        *stages,
        *items(layers, 2),
        *class_losses(),
    ])  # fmt: skip


def _train(project: Project, survey: SoundSurvey) -> str:
    fields: list[tuple[str, Any, str]] = [
        *survey.files.location(project.folder),
        ("sampling_rate", survey.rate, "samples per second"),
        ("resample", True, "sounds at other rates are converted"),
        *survey.files.on_error_field(survey.unreadable),
    ]
    padding = {"type": "Padding", "length": survey.length}
    spectrogram, normalization = _spectrogram(survey)[0], {"type": "Normalization", "adapt": True}
    lines = [
        *project.train_head(f"on the sounds in {project.location}"),
        "    source: audio",
        *explained_entries(fields, 4),
        *split_entry(project.data, survey.files.total, stratify="label", files=survey.files),
        *entry("batch_size", BATCH, "", 4), *entry("shuffle", True, "", 4),
        "    transforms:",
        *items([
            (
                {**padding, "truncating": "random"},
                f"{survey.length / survey.rate:.2g} s: nine of ten sounds fit (at most {LONGEST:g} s)",
            ),
            (spectrogram, "frames of 25 ms, one every 10 ms"),
            (normalization, "mean and variance of the training part"),
        ], 6),
        *project.stored_splits("audio", fields, BATCH, [padding, spectrogram, normalization], survey.files.lists),
    ]  # fmt: skip
    patience = patient_epochs(survey.files.total, BATCH, 8)
    epochs = most_epochs(survey.files.total, patience)
    return document([*lines, *training(monitor="loss", epochs=epochs, patience=patience, space=project.space)])
