"""Object code into the running process, through LLVM's loader; numba is not needed for that."""

from __future__ import annotations

from functools import cache
from typing import Any


def pack(name: str, code: bytes) -> bytes:
    """Object code and the name of the function in it, as one file."""
    label = name.encode()
    return len(label).to_bytes(4, "little") + label + code


def load(packed: bytes) -> int:
    """Link what `pack` made; the address of the function. It stays for the life of the process."""
    import llvmlite.binding as llvm

    length = int.from_bytes(packed[:4], "little")
    label, code = packed[4 : 4 + length].decode(), packed[4 + length :]
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = int(engine.get_function_address(label))
    if not address:
        raise RuntimeError(f"the compiled kernel {label} was not found in its object file")
    return address


@cache
def _engine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
