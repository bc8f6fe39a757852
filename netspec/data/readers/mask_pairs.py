"""Find the mask of each image: in a parallel folder, or next to it under a name with a suffix."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from netspec.data.file_kinds import IMAGES, MASKS
from netspec.data.files import existing, explain_read_errors
from netspec.data.readers.decode import upright_size
from netspec.data.readers.file_samples import Listing, files_below
from netspec.errors import InputError, Problem, did_you_mean, listing

MAX_LISTED = 10
"""Number of files with the same problem that are listed; the others are counted."""

MAX_CHARACTERS = 2**26
"""Maximum length of a list of names."""


def paired_files(
    images: Path,
    masks: Path,
    suffix: str,
    names: Sequence[str] | None,
    *,
    skip: bool,
    most: int | None,
) -> tuple[Listing, Listing]:
    """Return the images in a folder and the masks in another, in the same order: sorted, or that of `names`.

    At most the first `most` images.

    The mask of `a/b.jpg` is `a/b` + `suffix` + `.png`, or another suffix of a mask. `names` are the images to use, with
    or without a suffix. Raises `InputError` with the images that have no mask, or a mask of another size; with `skip`
    they are left out.
    """
    absent: list[Problem] = []
    for folder in (images, masks):
        try:
            existing(folder, folder=True)
        except InputError as error:
            absent += error.problems
    if absent:
        raise InputError(absent)
    by_name: defaultdict[str, list[Path]] = defaultdict(list)
    for file in files_below(masks, MASKS):
        by_name[_name(file, masks)].append(file)
    chosen = _images(images, suffix if images == masks else "", names)[:most]
    pairs = [(file, by_name.get(f"{_name(file, images)}{suffix}", [])) for file in chosen]
    several = [" and ".join(map(str, files)) for _, files in pairs if len(files) > 1]
    candidates = [(file, files[0] if files else None) for file, files in pairs]
    unpaired = [str(file) for file, mask in candidates if mask is None]
    sizes = {file: _difference(file, mask) for file, mask in candidates if mask is not None}
    mismatched = [f"{file} ({difference})" for file, difference in sizes.items() if difference]
    problems = []
    if several:
        problems.append(_problem("images have several masks", several, len(chosen), "one mask for each image"))
    if unpaired:
        expected = f"{masks / (_name(chosen[0], images) + suffix)}.png for {chosen[0]}"
        problems.append(_problem("images have no mask", unpaired, len(chosen), expected))
    if mismatched:
        expected = "masks of the same height and width as their images"
        problems.append(_problem("images differ in size from their masks", mismatched, len(chosen), expected))
    matching = [(file, mask) for file, mask in candidates if mask is not None and not sizes[file]]
    if problems and (not skip or not matching):
        raise InputError(problems)
    left_out = [f"{file} has no mask" for file in unpaired] + [
        f"image {file} differs from its mask" for file in mismatched
    ]
    return (
        Listing(IMAGES, [file for file, _ in matching], None, left_out=left_out),
        Listing(MASKS, [mask for _, mask in matching], None),
    )


def listed_names(path: Path) -> list[str]:
    """Return the names in a list, one in each line. Raises `InputError` if it is empty or damaged."""
    try:
        with explain_read_errors(path), existing(path).open(encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a list of names", expected="text in UTF-8", got=str(error)) from None
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{path} is too long for a list", expected=f"at most {MAX_CHARACTERS:,} characters")
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if not names:
        raise InputError(f"{path} is empty", expected="one name per line")
    return names


def _name(file: Path, root: Path) -> str:
    """Return the path of a file below a folder, without its suffix."""
    return file.relative_to(root).with_suffix("").as_posix()


def _images(folder: Path, mask_suffix: str, names: Sequence[str] | None) -> list[Path]:
    """Return the images below a folder that are not masks, or those of them that `names` lists."""
    files = [file for file in files_below(folder, IMAGES) if not (mask_suffix and file.stem.endswith(mask_suffix))]
    if not files:
        raise InputError(f"{folder} holds no images", expected=f"files that end in {listing(sorted(IMAGES.suffixes))}")
    if names is None:
        return files
    by_name = {key: file for file in files for key in (_name(file, folder), file.relative_to(folder).as_posix())}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InputError(
            f"{len(unknown):,} of {len(names):,} listed images are not in {folder}",
            expected="paths of images in this folder, with or without a suffix",
            got=listing(unknown, MAX_LISTED),
            hint=did_you_mean(unknown[0], by_name),
        )
    return [by_name[name] for name in names]


def _difference(image: Path, mask: Path) -> str:
    """Return a description of the sizes of an image and its mask if they differ.

    A header that cannot be read is reported when the sample is read.
    """
    try:
        sizes = upright_size(image, str(image)), upright_size(mask, str(mask))
    except InputError:
        return ""
    return "" if sizes[0] == sizes[1] else "{} × {}, its mask {} × {}".format(*sizes[0], *sizes[1])


def _problem(text: str, files: Sequence[str], count: int, expected: str) -> Problem:
    return Problem(f"{len(files):,} of {count:,} {text}", expected=expected, got=listing(files, MAX_LISTED))
