"""Downloads of known datasets: tries mirrors in turn, resumes, verifies and unpacks.

A file gets its name only when it is complete and its SHA-256 is right, so existing files can be relied on. Archives are
read by the names of their members; no path in an archive determines where a file is written.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING

from netspec.data.dataset_files import find_file
from netspec.data.files import explain_read_errors
from netspec.data.known_datasets import Download, KnownSet, PublishedFile
from netspec.errors import InputError, RunError, kind_of_path, listing
from netspec.files.cache_folder import DATA_VARIABLE, data_folder

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector

MIRROR_VARIABLE = "NETSPEC_DATA_MIRROR"
"""Environment variable for an address to try first: `ADDRESS/NAME/FILE`, such as a folder of known sets on a server."""

TIMEOUT = 20.0
"""Seconds without a response or a further byte after which a mirror is given up."""

PATIENCE, LEAST = 60.0, 2**16
"""Length in seconds of the interval in which a mirror must send this many bytes."""

LOG_EVERY = 5.0
"""Seconds between two lines of progress."""

_PIECE = 2**18
_log = logging.getLogger("netspec.data")


class _Failed(Exception):
    """A mirror did not provide the file; the message is the reason."""


def ensure(dataset: KnownSet, folder: Path | None = None, *, offline: bool = False) -> Path:
    """Return the folder with all files of the set, after downloading missing ones: `folder`, or the set's cache folder.

    Archives that are in the folder already, downloaded by hand, are unpacked. With `offline` nothing is downloaded.
    Raises `InputError` if a file is in the way, `RunError` if a download or a write fails.
    """
    folder = folder or data_folder() / dataset.name
    missing = _missing(dataset, folder)
    if not missing:
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock_folder(folder, dataset), _log_to_stderr():
            for download in missing:
                _install(dataset, download, folder, offline=offline)
    except OSError as error:
        raise RunError(
            f"cannot write the files of {dataset.name} into {folder}",
            got=error.strerror or str(error),
            hint=f"set another folder: `path` in the training file, or the environment variable {DATA_VARIABLE}",
        ) from None
    return folder


def check_folder(dataset: KnownSet, folder: Path, *, offline: bool) -> None:
    """Raise `InputError` if files of the set are missing in `folder` and cannot be put there. Reads and writes no file.

    With `offline`, they cannot be downloaded, only unpacked from an archive in the folder.
    """
    for download in _missing(dataset, folder):
        if offline and not (folder / download.name).is_file():
            raise _absent(dataset, folder, download)


def _missing(dataset: KnownSet, folder: Path) -> list[Download]:
    """Return the downloads of which files are missing. Raises `InputError` if a file is in the way."""
    if kind_of_path(folder) not in {None, "a folder"} or folder.is_file():
        raise InputError(f"{folder} is not a folder", expected=f"a folder for the files of {dataset.name}")
    return [
        download
        for download in dataset.downloads
        if any(find_file(dataset, folder, part) is None for part in download.members.values())
    ]


def _absent(dataset: KnownSet, folder: Path, download: Download) -> InputError:
    return InputError(
        f"{dataset.name} is not in {folder}, and downloads are disabled",
        expected=listing([part.name for part in download.members.values()]),
        hint=_by_hand(dataset, folder, download),
    )


def _install(dataset: KnownSet, download: Download, folder: Path, *, offline: bool) -> None:
    """Put the files of a download into the folder."""
    archive = folder / download.name
    by_hand = archive.is_file()
    if by_hand:
        digest = _digest(archive)
        if digest != download.sha256:
            raise InputError(
                f"{archive} is not the published file",
                expected=f"SHA-256 {download.sha256}",
                got=f"SHA-256 {digest}, {archive.stat().st_size:,} bytes",
                hint="remove it to download it again",
            )
    elif offline:
        raise _absent(dataset, folder, download)
    else:
        _fetch(dataset, download, archive)
    _unpack(download, archive, folder)
    if not by_hand:
        archive.unlink()


def _fetch(dataset: KnownSet, download: Download, archive: Path) -> None:
    """Download the file to `archive` from the first mirror that has it."""
    part = archive.with_name(f"{archive.name}.part")
    attempts = []
    for address in _addresses(dataset, download):
        try:
            _fetch_from(address, download, part)
        except _Failed as error:
            attempts.append(f"{address}: {error}")
            continue
        for attempt in attempts:  # if all mirrors fail, the error reports them
            _log.info("%s", attempt)
        part.replace(archive)
        return
    raise RunError(
        f"cannot download {dataset.name}",
        expected=f"{download.name} from one of its mirrors",
        hint=_by_hand(dataset, archive.parent, download),
        notes=tuple(f"tried {attempt}" for attempt in attempts),
    )


def _addresses(dataset: KnownSet, download: Download) -> list[str]:
    mirror = os.environ.get(MIRROR_VARIABLE)
    folders = [f"{mirror.rstrip('/')}/{dataset.name}/"] if mirror else []
    return [folder + download.name for folder in (*folders, *download.folders)]


def _by_hand(dataset: KnownSet, folder: Path, download: Download) -> str:
    return (
        f"by hand: put {download.name} ({download.size:,} bytes, SHA-256 {download.sha256}) into {folder}; see "
        f"{dataset.page}. To use your own mirror, set {MIRROR_VARIABLE}"
    )


def _fetch_from(address: str, download: Download, part: Path) -> None:
    """Download to `part` from an address, continuing an interrupted attempt. Raises `_Failed`."""
    offset = part.stat().st_size if part.is_file() else 0
    if offset >= download.size:
        offset = 0
    _log.info("fetching %s (%.1f MB) from %s", download.name, download.size / 1e6, address)
    try:
        with _opened(address, offset) as response:
            offset = offset if response.status == 206 else 0
            _receive(response, download, part, offset)
    except (OSError, HTTPException, ValueError) as error:
        raise _Failed(_describe_failure(error)) from None
    digest = _digest(part)
    if digest != download.sha256:
        part.unlink()
        if offset:  # the earlier part, maybe from another mirror, may be wrong: download all again
            _fetch_from(address, download, part)
            return
        raise _Failed(f"a different file: SHA-256 {digest}, expected {download.sha256}")


def _receive(response: HTTPResponse, download: Download, part: Path, offset: int) -> None:
    """Write the response after the first `offset` bytes of `part`; never more than the size of the file."""
    received, since, reported = offset, (monotonic(), offset), monotonic()
    try:
        file = part.open("r+b" if offset else "wb")
    except OSError as error:
        raise RunError(f"cannot write {part}", got=error.strerror or str(error)) from None
    with file:
        file.seek(offset)
        while piece := response.read(_PIECE):
            received += len(piece)
            if received > download.size:
                raise _Failed(f"more than the {download.size:,} bytes that the file has")
            _write(file, piece, part)
            now = monotonic()
            if now - since[0] > PATIENCE:
                if received - since[1] < LEAST:
                    raise _Failed(f"too slow: {received - since[1]:,} bytes in {PATIENCE:.0f} s")
                since = now, received
            if now - reported > LOG_EVERY:
                reported = now
                _log.info("%s: %d %% of %.1f MB", download.name, 100 * received // download.size, download.size / 1e6)
    if received < download.size:
        raise _Failed(f"interrupted after {received:,} of {download.size:,} bytes")


def _write(file: IO[bytes], piece: bytes, path: Path) -> None:
    try:
        file.write(piece)
    except OSError as error:  # a full disk: not the mirror's fault
        raise RunError(f"cannot write {path}", got=error.strerror or str(error)) from None


@contextmanager
def _opened(address: str, offset: int) -> Iterator[HTTPResponse]:
    """Open an address, from byte `offset` on if the server supports it."""
    from urllib.request import Request

    headers = {"User-Agent": "netspec", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    with _opener().open(Request(address, headers=headers), timeout=TIMEOUT) as response:  # noqa: S310  of HTTP alone
        yield response


def _opener() -> OpenerDirector:
    """Return an opener for HTTP and HTTPS only, with the proxies of the environment."""
    from urllib import request

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPRedirectHandler(),
        request.HTTPErrorProcessor(),
        request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _describe_failure(error: Exception) -> str:
    """Describe the failure of a mirror in a few words."""
    code, reason = getattr(error, "code", None), getattr(error, "reason", None)
    if code is not None:
        return f"HTTP {code} {reason}"
    if isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        return f"no response for {TIMEOUT:.0f} s"
    if isinstance(reason, OSError):
        return reason.strerror or str(reason)
    return str(reason or error) or type(error).__name__


def _unpack(download: Download, archive: Path, folder: Path) -> None:
    """Unpack the files of an archive whose digest is right. Each gets its name once its own digest is verified."""
    try:
        with gzip.open(archive, "rb") if download.is_packed else archive.open("rb") as packed:
            if download.is_tar:
                _unpack_tar(packed, download.members, folder)
            else:
                (part,) = download.members.values()
                _write_verified(packed, part, folder)
    except (EOFError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as error:
        raise RunError(f"{archive} cannot be unpacked", got=str(error)) from None


def _unpack_tar(packed: IO[bytes] | gzip.GzipFile, members: Mapping[str, PublishedFile], folder: Path) -> None:
    remaining = dict(members)
    with tarfile.open(fileobj=packed, mode="r|") as archive:
        for member in archive:
            part = remaining.pop(member.name, None)
            if part is not None and member.isreg():
                content = archive.extractfile(member)
                assert content is not None  # it is a regular file
                _write_verified(content, part, folder)
            if not remaining:
                return
    raise RunError(f"the archive lacks {listing(list(remaining))}")


def _write_verified(content: IO[bytes] | gzip.GzipFile, part: PublishedFile, folder: Path) -> None:
    """Write a part to a temporary file, and rename it once its checksum is right."""
    path = folder / part.name
    temporary = path.with_name(f"{path.name}.new")
    digest, limit = hashlib.sha256(), part.size + 1
    with temporary.open("wb") as file:
        while limit and (piece := content.read(min(_PIECE, limit))):
            limit -= len(piece)
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if limit != 1 or digest.hexdigest() != part.sha256:
        temporary.unlink()
        raise RunError(f"{part.name} in the archive is not the published file", expected=f"SHA-256 {part.sha256}")
    temporary.replace(path)


def _digest(path: Path) -> str:
    with explain_read_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Write log messages to the standard error, unless the program has configured its logs."""
    if _log.hasHandlers() or _log.level != logging.NOTSET:
        yield
        return
    handler = logging.StreamHandler()
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(logging.NOTSET)


@contextmanager
def _lock_folder(folder: Path, dataset: KnownSet) -> Iterator[None]:
    """Hold the folder for one downloading process at a time. Raises `RunError` if another process holds it."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: no lock
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"another process is downloading {dataset.name} into {folder}", hint="start again when it is done"
            ) from None
        except OSError:
            _log.debug("%s is on a file system without locks", folder)
        yield
