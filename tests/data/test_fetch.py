"""Known datasets: downloads from local mirrors, resuming, verifying, unpacking, and failures."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep

import pytest

from netspec.data import downloads
from netspec.data.dataset_files import REMEMBERED, damaged_files, verified_files
from netspec.data.downloads import ensure
from netspec.data.known_datasets import KNOWN_SETS, Download, KnownSet, PublishedFile
from netspec.errors import InputError, NetspecError, RunError
from netspec.files.cache_folder import data_folder
from netspec.schema.specs.paths import absolute

CONTENT = {"a.bin": bytes(range(256)) * 40, "b.bin": b"hello" * 99}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(members: dict[str, bytes]) -> bytes:
    """A tar.gz with these members."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


ARCHIVE = packed(
    {"../evil": b"x", "set/other.txt": b"y" * 5000, **{f"set/{name}": data for name, data in CONTENT.items()}}
)
PACKED = gzip.compress(CONTENT["b.bin"], mtime=0)


class Server:
    """Answers requests like a mirror, by path, and records them."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.ranges = True
        self.cut: int | None = None
        self.wait = 0.0


@pytest.fixture
def server() -> Iterator[Server]:
    server: Server

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            byte_range = self.headers.get("Range")
            server.asked.append((self.path, byte_range))
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/file")
                self.end_headers()
                return
            content = server.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            begin = int(byte_range.removeprefix("bytes=").rstrip("-")) if byte_range and server.ranges else 0
            sleep(server.wait)
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            self.wfile.write(content[begin : server.cut])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server = Server(listening.server_port)
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        listening.shutdown()


def known(*folders: str, archive: bytes = ARCHIVE, members: dict[str, bytes] = CONTENT) -> KnownSet:
    """A dataset of two files in an archive."""
    parts = {f"set/{name}": PublishedFile(name, len(data), sha(data)) for name, data in members.items()}
    download = Download("set.tar.gz", len(archive), sha(archive), folders, parts)
    return KnownSet("tiny", "two files", "https://example.org", (download,), {"train": tuple(members)})


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_a_set_is_downloaded_once_and_only_its_files_are_kept(tmp_path, server, capfd, monkeypatch):
    monkeypatch.setattr(logging.getLogger("netspec.data"), "propagate", False)  # as in a program without logging
    server.files["/set.tar.gz"] = ARCHIVE
    tiny = known(f"{server.address}/")
    assert ensure(tiny, tmp_path / "new" / "tiny") == tmp_path / "new" / "tiny"
    assert files(tmp_path / "new" / "tiny") == CONTENT
    assert not damaged_files(tiny, tmp_path / "new" / "tiny")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name != ".lock") == [
        "a.bin",
        "b.bin",
        "new",
        "tiny",
    ]
    ensure(tiny, tmp_path / "new" / "tiny")
    assert len(server.asked) == 1
    assert capfd.readouterr().err == f"fetching set.tar.gz (0.0 MB) from {server.address}/set.tar.gz\n"


def test_a_gzipped_file_is_unpacked(tmp_path, server):
    server.files["/b.bin.gz"] = PACKED
    part = PublishedFile("b.bin", len(CONTENT["b.bin"]), sha(CONTENT["b.bin"]))
    download = Download("b.bin.gz", len(PACKED), sha(PACKED), (f"{server.address}/",), {"b.bin": part})
    ensure(KnownSet("tiny", "", "", (download,), {}), tmp_path)
    assert files(tmp_path) == {"b.bin": CONTENT["b.bin"]}


def test_mirrors_are_tried_in_order_after_the_mirror_of_the_user(tmp_path, server, monkeypatch, caplog):
    caplog.set_level("INFO", "netspec.data")
    server.files["/c/set.tar.gz"] = ARCHIVE
    server.files["/b/set.tar.gz"] = ARCHIVE[:-1] + b"!"
    monkeypatch.setenv("NETSPEC_DATA_MIRROR", f"{server.address}/own/")
    ensure(known(*(f"{server.address}/{name}/" for name in "abc")), tmp_path)
    assert [path for path, _ in server.asked] == [f"/{name}/set.tar.gz" for name in ("own/tiny", "a", "b", "c")]
    assert files(tmp_path) == CONTENT
    assert f"{server.address}/a/set.tar.gz: HTTP 404 Not Found" in caplog.messages


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_is_resumed(tmp_path, server, ranges):
    server.files["/set.tar.gz"] = ARCHIVE
    server.cut = 300
    tiny = known(f"{server.address}/")
    with pytest.raises(RunError, match="cannot download tiny"):
        ensure(tiny, tmp_path)
    assert (tmp_path / "set.tar.gz.part").read_bytes() == ARCHIVE[:300]
    server.cut, server.ranges = None, ranges
    ensure(tiny, tmp_path)
    assert server.asked[-1] == ("/set.tar.gz", "bytes=300-")
    assert files(tmp_path) == CONTENT


def test_a_partial_download_of_another_file_is_discarded(tmp_path, server):
    server.files["/set.tar.gz"] = ARCHIVE
    (tmp_path / "set.tar.gz.part").write_bytes(b"!" * 300)
    ensure(known(f"{server.address}/a/", f"{server.address}/"), tmp_path)  # one working mirror is enough
    assert [byte_range for _, byte_range in server.asked] == ["bytes=300-", "bytes=300-", None]
    assert files(tmp_path) == CONTENT


def test_all_attempts_are_reported_with_instructions_for_a_manual_download(tmp_path, server, monkeypatch, caplog):
    caplog.set_level("INFO", "netspec.data")
    server.files |= {"/longer/set.tar.gz": ARCHIVE + b"!", "/other/set.tar.gz": bytes(len(ARCHIVE))}
    server.files["/slow/set.tar.gz"] = ARCHIVE
    monkeypatch.setattr(downloads, "TIMEOUT", 0.3)
    tiny = known(
        *(f"{server.address}/{name}/" for name in ("none", "longer", "other")), "http://127.0.0.1:1/", "file:///"
    )
    with pytest.raises(RunError) as error:
        ensure(tiny, tmp_path)
    assert error.value.render().replace(server.address, "http://mirror").replace(str(tmp_path), ".") == (
        "error: cannot download tiny\n"
        "  expected: set.tar.gz from one of its mirrors\n"
        f"  hint: by hand: put set.tar.gz ({len(ARCHIVE):,} bytes, SHA-256 {sha(ARCHIVE)}) into .; see "
        "https://example.org. To use your own mirror, set NETSPEC_DATA_MIRROR\n"
        "  tried http://mirror/none/set.tar.gz: HTTP 404 Not Found\n"
        f"  tried http://mirror/longer/set.tar.gz: more than the {len(ARCHIVE):,} bytes that the file has\n"
        f"  tried http://mirror/other/set.tar.gz: a different file: SHA-256 {sha(bytes(len(ARCHIVE)))}, "
        f"expected {sha(ARCHIVE)}\n"
        "  tried http://127.0.0.1:1/set.tar.gz: Connection refused\n"
        "  tried file:///set.tar.gz: unknown url type: file"
    )
    assert len(caplog.messages) == 5  # addresses are logged, failures are not
    assert all(message.startswith("fetching ") for message in caplog.messages)
    server.wait = 1
    with pytest.raises(RunError) as error:
        ensure(known(f"{server.address}/slow/"), tmp_path)
    assert error.value.problems[0].notes[0].endswith("no response for 0 s")


def test_a_mirror_that_is_too_slow_is_abandoned(tmp_path, server, monkeypatch):
    server.files["/set.tar.gz"] = ARCHIVE
    monkeypatch.setattr(downloads, "PATIENCE", -1.0)
    with pytest.raises(RunError) as error:
        ensure(known(f"{server.address}/"), tmp_path)
    assert "too slow: " in error.value.problems[0].notes[0]


def test_a_manually_downloaded_archive_is_unpacked_and_kept(tmp_path):
    (tmp_path / "set.tar.gz").write_bytes(ARCHIVE)
    ensure(known(), tmp_path, offline=True)
    assert files(tmp_path) == {**CONTENT, "set.tar.gz": ARCHIVE}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: (folder / "set.tar.gz").write_bytes(ARCHIVE[:-1]), "set.tar.gz is not the published file"),
        (lambda folder: (folder / "a.bin").write_bytes(b"short"), "a.bin is not the published file"),
        (lambda folder: (folder / "a.bin").mkdir(), "a.bin is not the published file"),
        (lambda folder: None, "tiny is not in "),
    ],
)
def test_files_in_the_way_are_reported(tmp_path, prepare: Callable[[Path], object], message):
    prepare(tmp_path)
    with pytest.raises(InputError, match=message):
        ensure(known(), tmp_path, offline=True)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is not a folder"):
        ensure(known(), tmp_path / "file")
    with pytest.raises(RunError, match="cannot write the files of tiny"):
        ensure(known(), tmp_path / "file" / "folder")


@pytest.mark.parametrize(
    "members", [{"set/a.bin": CONTENT["a.bin"]}, {"set/a.bin": CONTENT["a.bin"] + b"!", "set/b.bin": CONTENT["b.bin"]}]
)
def test_archives_with_missing_or_wrong_members_are_refused(tmp_path, members):
    archive = packed(members)
    (tmp_path / "set.tar.gz").write_bytes(archive)
    with pytest.raises(
        NetspecError, match=r"lacks b\.bin|lacks set/b\.bin|a\.bin in the archive is not the published file"
    ):
        ensure(known(archive=archive), tmp_path)
    assert not list(tmp_path.glob("*.new"))


def test_only_one_process_downloads_at_a_time(tmp_path):
    fcntl = pytest.importorskip("fcntl", reason="the platform has no locks of files")
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="another process is downloading tiny"):
            ensure(known(), tmp_path)


def test_files_with_wrong_content_are_detected(tmp_path):
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    assert not damaged_files(known(), tmp_path)
    (tmp_path / "b.bin").write_bytes(b"!" + CONTENT["b.bin"][1:])
    assert [part.name for part in damaged_files(known(), tmp_path)] == ["b.bin"]


def test_the_folder_of_downloaded_sets(monkeypatch, tmp_path):
    monkeypatch.setenv("NETSPEC_DATA", str(tmp_path / "mine"))
    assert data_folder() == tmp_path / "mine"
    monkeypatch.delenv("NETSPEC_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "netspec" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "netspec" / "data"


def test_paths_of_specs_below_the_folder_of_downloaded_sets(monkeypatch, tmp_path):
    monkeypatch.delenv("NETSPEC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert absolute("$NETSPEC_DATA/known/a.bin", None) == tmp_path / "netspec" / "data" / "known" / "a.bin"
    monkeypatch.setenv("NETSPEC_DATA", str(tmp_path / "mine"))
    assert absolute("$NETSPEC_DATA/known", None) == tmp_path / "mine" / "known"
    assert absolute("./$NETSPEC_DATA/known", None) == Path("$NETSPEC_DATA/known").absolute()


def test_a_file_that_is_not_packed_is_kept_under_its_own_name(tmp_path, server):
    server.files["/input.txt"] = CONTENT["b.bin"]
    part = PublishedFile("greeting.txt", len(CONTENT["b.bin"]), sha(CONTENT["b.bin"]))
    download = Download("input.txt", part.size, part.sha256, (f"{server.address}/",), {"input.txt": part})
    greeting = KnownSet("greeting", "a text", "https://example.org", (download,))
    ensure(greeting, tmp_path)
    assert files(tmp_path) == {"greeting.txt": CONTENT["b.bin"]}
    ensure(greeting, tmp_path)
    assert len(server.asked) == 1


def test_the_known_sets_are_complete():
    for name, known_set in KNOWN_SETS.items():
        assert known_set.name == name
        if known_set.splits:
            assert {part for split in known_set.splits.values() for part in split} == set(known_set.parts)
        assert all(len(classes) == len(set(classes)) for classes in known_set.classes.values())
        for download in known_set.downloads:
            assert all(
                folder.startswith(("https://", "http://")) and folder.endswith("/") for folder in download.folders
            )
            assert all(len(sha) == 64 for sha in (download.sha256, *(part.sha256 for part in known_set.parts.values())))


def test_files_count_only_if_their_content_is_right(tmp_path, monkeypatch):
    monkeypatch.setenv("NETSPEC_DATA", str(tmp_path / "home"))
    part, tiny = (
        PublishedFile("b.bin", len(CONTENT["b.bin"]), sha(CONTENT["b.bin"])),
        known(members={"a.bin": CONTENT["a.bin"]}),
    )
    tiny = replace(tiny, downloads=(*tiny.downloads, Download("b.bin.gz", 1, "", (), {"b.bin": part})))
    folder = tmp_path / "tiny"
    (folder / "set").mkdir(parents=True)
    (folder / "set" / "a.bin").write_bytes(CONTENT["a.bin"])
    # compressed differently, but with the same content
    (folder / "b.bin.gz").write_bytes(gzip.compress(CONTENT["b.bin"], 1))
    assert ensure(tiny, folder, offline=True) == folder
    assert not damaged_files(tiny, folder)
    files = [folder / "set" / "a.bin", folder / "b.bin.gz"]
    assert verified_files(tiny, folder, CONTENT) == files
    with monkeypatch.context() as patched:  # verified files are not read again
        patched.setattr("netspec.data.dataset_files.content_digest", lambda *_: pytest.fail("read twice"))
        assert verified_files(tiny, folder, CONTENT) == files
    files[0].write_bytes(b"!" + CONTENT["a.bin"][1:])
    with pytest.raises(InputError, match=r"a\.bin is not the published file"):
        verified_files(tiny, folder, CONTENT)
    files[0].write_bytes(CONTENT["a.bin"])
    (tmp_path / "home" / REMEMBERED).write_text("[damaged")
    assert verified_files(tiny, folder, CONTENT) == files
    files[1].write_bytes(gzip.compress(CONTENT["b.bin"])[:-9])
    with pytest.raises(InputError, match=r"b\.bin\.gz is not the published file"):
        verified_files(tiny, folder, CONTENT)
