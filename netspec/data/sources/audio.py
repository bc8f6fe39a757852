"""`{source: audio}`: WAV files in class folders, or named in a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from netspec.data.base import ClassNames, Dataset, Source, blamed_on
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path


@SOURCES.register
class Audio(Source):
    """WAV files of whole numbers (8, 16, 24, 32 bits) or floats (32, 64), in one folder a class or named in a list.

    Fields: `audio` `[channels, samples]` of float32, -1 to 1, of the sound's own length: the transform Padding makes
    all of one length (and takes another part of long ones in every epoch with `truncating: random`); `label` `[]` of
    int32, the class's place in `classes`. The order is that of the classes, then of the paths; or that of the list.
    """

    source: Literal["audio"] = "audio"
    path: FilePath
    """the folder of the class folders, or that paths in a list are relative to; relative to this file"""
    sampling_rate: PositiveInt
    """samples in a second of every sound; another rate in a file is an error unless `resample`"""
    resample: bool = False
    """bring sounds of other rates to `sampling_rate`, by a polyphase filter as SciPy's `resample_poly`"""
    channels: Literal["mix", "left", "right", "stereo"] = "mix"
    """`mix`: the mean of all channels; `left`, `right`: one of them; `stereo`: both"""
    list: FilePath | None = None
    """a list of the sounds in place of class folders: a `.csv` file with the columns `path` and `label` (numbers, or
    names, or none), else a path, a blank and a number in each line. Names are those of the training split"""
    classes: ClassNames | None = None
    """the class names in the order of their labels; default: all that there are, sorted as text (`10` before `2`)"""

    samples: ClassVar = (
        {"path": "commands/train", "sampling_rate": 16000, "transforms": [{"type": "Padding", "length": 16000}]},
    )

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The list of files; sounds are read batch by batch."""
        from netspec.data.audio.sounds import SOUNDS, SoundFiles
        from netspec.data.readers.file_lists import listed_files
        from netspec.data.readers.file_samples import class_folders

        root, skip = resolve_path(self, "path"), self.on_error == "skip"
        if self.list is not None:
            with blamed_on(self, "list"):
                found = listed_files(resolve_path(self, "list"), root, self.classes, SOUNDS, skip=skip, learned=learned)
        else:
            with blamed_on(self, "path"):
                found = class_folders(root, self.classes, SOUNDS)
        with blamed_on(self, "path"):
            return SoundFiles(
                found, sampling_rate=self.sampling_rate, channels=self.channels, resample=self.resample, skip=skip
            )
