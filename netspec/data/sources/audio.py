"""`{source: audio}`: WAV files in class folders, or named in a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PositiveInt

from netspec.data.base import ClassNames, Dataset, Survey, located_at
from netspec.data.file_kinds import SOUNDS, FileKind
from netspec.data.sources.files import FIRST, MAX_LINES, FileSource
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.paths import FilePath, resolve_path

if TYPE_CHECKING:
    from netspec.data.readers.file_samples import Listing


@SOURCES.register
class Audio(FileSource):
    """WAV files of integers (8, 16, 24, 32 bits) or floats (32, 64), in one folder per class or named in a list.

    Fields: `audio` `[channels, samples]` of float32 from -1 to 1, with the length of the sound: the transform Padding
    gives all the same length (and uses another part of long ones in every epoch with `truncating: random`); `label`
    `[]` of int32, the index of the class in `classes`. Samples are ordered by class, then by path; or as in the list.
    """

    source: Literal["audio"] = "audio"
    path: FilePath
    """The folder that contains the class folders, or to which paths in a list are relative. Relative to this file."""
    sampling_rate: PositiveInt
    """Samples per second of every sound. Another rate in a file is an error unless `resample` is set."""
    resample: bool = False
    """Whether to convert sounds of other rates to `sampling_rate`, by a polyphase filter like SciPy's
    `resample_poly`."""
    channels: Literal["mix", "left", "right", "stereo"] = "mix"
    """`mix`: the mean of all channels; `left`, `right`: one of them; `stereo`: both."""
    list: FilePath | None = None
    """A list of the sounds instead of class folders: a `.csv` file with the columns `path` and `label` (numbers, names,
    or absent), else a path, a space and a number in each line. Names are those of the training split.

    `split` can name any column of a `.csv` file."""
    classes: ClassNames | None = None
    """The class names in the order of their labels; by default all that occur, sorted as text (`10` before `2`)."""

    samples: ClassVar = (
        {"path": "commands/train", "sampling_rate": 16000, "transforms": [{"type": "Padding", "length": 16000}]},
    )

    def file_kind(self) -> FileKind:
        """Return the kind of sound files."""
        return SOUNDS

    def class_folder(self) -> Path | None:
        """Return the folder of the class folders, if there are any."""
        return None if self.list is not None else resolve_path(self, "path")

    def classes_without_samples(self) -> Mapping[str, Sequence[str]] | None:
        """Return the declared class names, or those of the class folders."""
        return self.classes_of_folders()

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """List the files. Sounds are read batch by batch."""
        listing = self._listing(learned)
        with located_at(self, "path"):
            return self._sounds(listing)

    def first_files(self) -> Listing:
        """Return some of the sounds."""
        return self._listing(None, most=FIRST if self.list is None else MAX_LINES)

    def survey_of(self, listing: Listing) -> Survey:
        """Return the fields; no sound is read."""
        return Survey(self._sounds(listing).fields)

    def _listing(self, learned: Mapping[str, Any] | None, most: int | None = None) -> Listing:
        from netspec.data.readers.file_lists import listed_files
        from netspec.data.readers.file_samples import class_folders, unlabeled

        root, skip = resolve_path(self, "path"), self.on_error == "skip"
        if self._unlabeled:
            return unlabeled(self._unlabeled, SOUNDS)
        if self.list is not None:
            with located_at(self, "list"):
                return listed_files(
                    resolve_path(self, "list"), root, self.classes, SOUNDS, skip=skip, learned=learned, most=most,
                    hold_out=self.hold_out,
                )  # fmt: skip
        with located_at(self, "path"):
            return class_folders(root, self.classes, SOUNDS, most)

    def _sounds(self, listing: Listing) -> Dataset:
        from netspec.data.audio.sounds import SoundFiles

        return SoundFiles(
            listing, sampling_rate=self.sampling_rate, channels=self.channels, resample=self.resample,
            skip=self.on_error == "skip",
        )  # fmt: skip
