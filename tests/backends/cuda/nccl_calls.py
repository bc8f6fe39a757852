"""`python -m tests.backends.cuda.nccl_calls`: check the NCCL calls of `communicators/nccl.py` through CuPy.

It needs no GPU. NCCL is 305 MB: if it is not installed, a library with the same functions is compiled, which records
the calls; they are compared with those expected for each operation. If NCCL is installed, it is asked to open the group
of workers, which must fail only because there is no device. The exit status is 1 if something differs.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from netspec.distributed.communicators.base import Communicator
from netspec.distributed.communicators.nccl import NcclGroup, library, version
from tests.backends.cuda import nccl as stand_in
from tests.backends.cuda.emulator import compiler
from tests.backends.cuda.without_gpu import complaint, load

NAME = "libnccl.so.2"
VERSION = 22707
"""Version 2.27.7 in NCCL's encoding."""
PROTOTYPES = {
    "AllReduce": "const void *from, void *to, size_t count, int type, int op, void *comm, void *stream",
    "Reduce": "const void *from, void *to, size_t count, int type, int op, int root, void *comm, void *stream",
    "ReduceScatter": "const void *from, void *to, size_t count, int type, int op, void *comm, void *stream",
    "AllGather": "const void *from, void *to, size_t count, int type, void *comm, void *stream",
    "Broadcast": "const void *from, void *to, size_t count, int type, int root, void *comm, void *stream",
    "Send": "const void *from, size_t count, int type, int peer, void *comm, void *stream",
    "Recv": "void *to, size_t count, int type, int peer, void *comm, void *stream",
    "GroupStart": "", "GroupEnd": "", "CommDestroy": "void *comm", "CommAbort": "void *comm",
}  # fmt: skip
"""Prototypes of functions in `nccl.h`."""
UNCALLED = ("Bcast", "CommCount", "CommCuDevice", "CommInitAll", "CommSplit", "CommUserRank")
"""Further functions that CuPy's module links to."""
BEGINNING = """
#include <cstdio>
#include <cstring>
struct Id { char bytes[128]; };
static char told[1 << 14], *end = told, group;
static long long number(const void *x) { return x == &group ? -1 : (long long)x; }
static long long number(long long x) { return x; }
static int note(const char *line) { end += sprintf(end, "%s\\n", line); return 0; }
extern "C" {
const char *ncclGetErrorString(int) { return "an error"; }
int ncclGetVersion(int *found) { *found = VERSION; return 0; }
int ncclGetUniqueId(Id *id) { for (int i = 0; i < 128; ++i) id->bytes[i] = (char)(100 + i); return 0; }
int ncclCommGetAsyncError(void *, int *error) { *error = 0; return 0; }
int ncclCommInitRankConfig(void **comm, int count, Id id, int rank, void *) {
    bool whole = true;
    for (int i = 0; i < 128; ++i) whole = whole && id.bytes[i] == (char)(100 + i);
    *comm = &group;
    end += sprintf(end, "CommInitRankConfig %d %d %d\\n", count, whole, rank);
    return 0;
}
void taken(char *into) { strcpy(into, told); end = told; *end = 0; }
"""
FLOAT32, BYTE, TOTAL = stand_in.TYPES["FLOAT32"][0], stand_in.TYPES["UINT8"][0], 0
GROUP, STREAM = -1, 5
Calls = list[tuple[str, list[int]]]


def source() -> str:
    """C++ source of the library."""
    code = [BEGINNING.replace("VERSION", str(VERSION))]
    for name, parameters in PROTOTYPES.items():
        values = [part.split()[-1].lstrip("*") for part in parameters.split(", ") if part]
        text = f"{name}{' %lld' * len(values)}\\n"
        numbers = "".join(f", number({value})" for value in values)
        code.append(f'int nccl{name}({parameters}) {{ end += sprintf(end, "{text}"{numbers}); return 0; }}')
    code += [f'int nccl{name}() {{ return note("{name}"); }}' for name in UNCALLED]
    return "\n".join([*code, "}"])


def compiled() -> ctypes.CDLL:
    """Compile the library, and load it under NCCL's name. Raises `RuntimeError` if there is no C++ compiler."""
    actual = compiler()
    if actual is None:
        raise RuntimeError(f"there is no {NAME}, and no C++ compiler to make one with")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, NAME)
        command = [actual, "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-x", "c++", "-", "-o", str(result)]
        subprocess.run(command, input=source(), text=True, check=True)
        return ctypes.CDLL(str(result), mode=ctypes.RTLD_GLOBAL)  # stays loaded, and is found by its name


class Workers(Communicator):
    """The first or the second of three workers."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.size = rank, 3

    def broadcast_object(self, value: Any) -> Any:
        """The first worker's value: NCCL's unique id, as plain data."""
        return json.loads(json.dumps([(100 + i) % 256 for i in range(128)] if value is None else value))


def operations(group: NcclGroup) -> Iterator[tuple[Callable[[], object], Calls]]:
    """Each operation of the second of three workers, and the NCCL calls that it should make."""
    first, second = 1 << 33, 1 << 34  # addresses of a GPU need more than 32 bits

    def together(*calls: tuple[str, list[int]]) -> Calls:
        return [("GroupStart", []), *calls, ("GroupEnd", [])]

    last = GROUP, STREAM
    yield group.check, []
    yield (
        lambda: group.all_reduce(first, 7, "float32", STREAM),
        [("AllReduce", [first, first, 7, FLOAT32, TOTAL, *last])],
    )
    yield lambda: group.all_gather(first, second, 9, STREAM), [("AllGather", [first, second, 9, BYTE, *last])]
    transfers = [
        (name, [start + 4 * rank, 4, BYTE, rank, *last])
        for rank in range(3)
        for name, start in (("Send", first), ("Recv", second))
    ]
    yield lambda: group.all_to_all(first, second, 4, STREAM), together(*transfers)
    yield (
        lambda: group.reduce_scatter(first, second, [5, 5, 5], "float32", STREAM),
        [("ReduceScatter", [first, second, 5, FLOAT32, TOTAL, *last])],
    )
    yield (
        lambda: group.reduce_scatter(first, second, [5, 4, 0], "float32", STREAM),
        together(
            ("Reduce", [first, second, 5, FLOAT32, TOTAL, 0, *last]),
            ("Reduce", [first + 20, second, 4, FLOAT32, TOTAL, 1, *last]),
        ),
    )
    yield (
        lambda: group.all_gatherv(first, [5, 5, 5], "float32", STREAM),
        [("AllGather", [first + 20, first, 5, FLOAT32, *last])],
    )
    yield (
        lambda: group.all_gatherv(first, [5, 4, 0], "float32", STREAM),
        together(
            ("Broadcast", [first, first, 5, FLOAT32, 0, *last]),
            ("Broadcast", [first + 20, first + 20, 4, FLOAT32, 1, *last]),
        ),
    )
    yield group.abort, [("CommAbort", [GROUP])]


def noted(functions: ctypes.CDLL) -> Calls:
    """The calls since the last call of this function."""
    text = ctypes.create_string_buffer(1 << 14)
    functions.taken(text)
    lines = (line.split() for line in text.value.decode().splitlines())
    return [(name, [int(value) for value in values]) for name, *values in lines]


def differing(functions: ctypes.CDLL) -> Iterator[str]:
    """Report operations that make unexpected calls."""
    first, second = (NcclGroup(Workers(rank)) for rank in (0, 1))
    expected: Calls = [("CommInitRankConfig", [3, 1, rank]) for rank in (0, 1)]
    if (actual := noted(functions)) != expected:
        yield f"{actual}, not {expected}"
    for run, calls in [*operations(second), (first.destroy, [("CommDestroy", [GROUP])])]:
        run()
        if (actual := noted(functions)) != calls:
            yield f"{actual}, not {calls}"


def main() -> int:
    """Check all operations, and return the exit status."""
    cuda = load().cuda
    nccl, functions = library(), None
    if nccl is None:
        functions = compiled()
        del sys.modules["cupy.cuda.nccl"], cuda.nccl  # import it again, now that the library is loaded
        nccl = library()
    assert nccl is not None, "CuPy does not take the library"
    numbers = {name: (number, getattr(nccl, f"NCCL_{name}")) for name, (number, _) in stand_in.TYPES.items()}
    wrong = [f"NCCL_{name} is {real}, not {number}" for name, (number, real) in numbers.items() if number != real]
    if functions is None:
        wrong += [output for rank in (0, 1) if (output := complaint(partial(NcclGroup, Workers(rank)))) is not None]
    else:
        wrong += differing(functions)
    kind = "the real one" if functions is None else "one that notes its calls"
    print("\n".join([*wrong, f"NCCL {version()}, {kind}: {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
