"""Files are written completely or not at all, links and devices stay what they are, and nothing waits for a pipe."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from netspec.errors import Call, InputError, Location, Problem, RunError
from netspec.exchange.files import reading, remove_unfinished, sniff, staging, write_atomically
from netspec.exchange.formats.native.hdf5 import read_weights, write_weights

ARRAYS = {"fc/kernel": np.arange(60_000, dtype=np.float32)}
AS_FILE_SIZE = """
import resource, signal, sys
import numpy as np
from netspec.errors import RunError
from netspec.exchange.formats.native.hdf5 import write_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    write_weights(sys.argv[1], {"fc/kernel": np.zeros(60_000, np.float32)}, name="second")
except RunError as error:
    print(error)
"""


def test_a_full_disk_is_an_error_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.h5"
    write_weights(path, {"fc/kernel": np.ones(2, np.float32)}, name="first")
    process = subprocess.run(
        [sys.executable, "-c", AS_FILE_SIZE, str(path)], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")  # libhdf5 would end the process by a signal
    assert f"cannot write {path}" in process.stdout
    assert "File too large" in process.stdout
    assert ".tmp" not in process.stdout
    assert read_weights(path).name == "first"
    assert list(tmp_path.iterdir()) == [path]  # no temporary file remains


def test_a_full_disk_is_named_without_the_temporary_file(tmp_path: Path) -> None:
    def full(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device", str(temporary))

    with pytest.raises(RunError) as caught:
        write_atomically(tmp_path / "out.bin", full)
    (problem,) = caught.value.problems
    assert problem.message == f"cannot write {tmp_path / 'out.bin'}"
    assert problem.got == "No space left on device"
    assert not list(tmp_path.iterdir())


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "real.h5", tmp_path / "link.h5"
    link.symlink_to("store/real.h5")
    for name in ("new", "changed"):
        write_weights(link, ARRAYS, name=name)
        assert link.is_symlink()
        assert read_weights(target).name == name
    link.unlink()
    link.symlink_to("nowhere/real.h5")
    with pytest.raises(InputError, match=r"folder .*nowhere does not exist"):
        write_weights(link, ARRAYS)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
def test_pipes_and_devices_are_neither_replaced_nor_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="it is not a regular file but a pipe"):
        write_weights(pipe, ARRAYS)
    with pytest.raises(InputError, match="is not a regular file but a pipe"):
        read_weights(pipe)
    device = tmp_path / "null"
    device.symlink_to(os.devnull)
    with pytest.raises(InputError, match="it is not a regular file but a device"):
        write_weights(device, ARRAYS)
    with pytest.raises(InputError, match="is not a regular file but a device"):
        read_weights(device)


def test_a_dangling_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "w.h5").symlink_to("gone.h5")
    with pytest.raises(InputError) as caught, reading(tmp_path / "w.h5", "weights"):
        pass
    assert caught.value.problems[0].hint == "it is a link to gone.h5, which does not exist"


def test_only_files_that_a_killed_writer_left_are_removed(tmp_path: Path) -> None:
    names = [".w.h5.0123456789ab.tmp", ".mine.tmp", "w.h5.0123456789ab.tmp", ".w.h5.0123456789aB.tmp"]
    for name in names:
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


FILLING = """
import pathlib, sys
from netspec.exchange.files import staging

with staging(pathlib.Path(sys.argv[1])) as folder:
    (folder / "half").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no locks")
def test_a_folder_is_removed_once_the_process_that_filled_it_is_dead(tmp_path: Path) -> None:
    target = tmp_path / "digits"
    with subprocess.Popen(
        [sys.executable, "-c", FILLING, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        with staging(target):
            assert folder.is_dir(), "a process is still filling it"
        process.kill()
    assert folder.is_dir()
    with staging(target) as staged:
        assert list(tmp_path.iterdir()) == [staged]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [{"w": np.ones(3)}, [1, 2], np.ones((2, 2))], ids=["dict", "list", "array"])
def test_pickles_of_every_protocol_are_named(protocol: int, value: object) -> None:
    description, hint = sniff(pickle.dumps(value, protocol)[:512])
    assert description == "a Python pickle"
    assert hint is not None
    assert "run code" in hint


@pytest.mark.parametrize("text", [b"(a remark)\n", b"classes\ncat\ndog\n", b"]q", b"(1, 2)\n"])
def test_text_files_are_not_pickles(text: bytes) -> None:
    assert sniff(text) == ("a text file", None)


def test_errors_name_no_temporary_file_or_folder(tmp_path: Path) -> None:
    """Paths are replaced in all texts of a problem, in its notes, its location and the locations of calls."""

    def refuse(path: Path) -> None:
        location = Location(f"{path}/net.yaml", 1, 1, calls=(Call("in `a`", Location(f"{path}/net.yaml", 2, 1)),))
        text = f"it is in {path}"
        raise InputError(Problem(text, location, expected=text, got=text, hint=text, notes=(text,)))

    def staged(target: Path) -> None:
        with staging(target) as folder:
            refuse(folder)

    target = tmp_path / "made"
    for write in (staged, partial(write_atomically, write=refuse)):
        with pytest.raises(InputError) as caught:
            write(target)
        assert ".tmp" not in str(caught.value)
        assert str(caught.value).count(str(target)) == 7
