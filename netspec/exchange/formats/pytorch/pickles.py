"""PyTorch's own files (.pt, .pth, TorchScript) are pickles: they are recognized, but never read."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from netspec.errors import InputError, command
from netspec.exchange.containers.zip_archive import MAGIC, open_zip
from netspec.exchange.interface import ImportOptions, Target

WHAT = "a PyTorch file (.pt, .pth)"
LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of torch.save files before PyTorch 1.6, or without its zip format: a pickled magic number."""
KEYS = ("state_dict", "model_state_dict", "model")
"""Keys of the state dict in checkpoints of PyTorch Lightning, PyTorch's tutorials and torchvision."""
_MEMBERS = {"data.pkl", "constants.pkl"}


def is_pytorch(head: bytes, path: Path) -> bool:
    """Whether a file is a zip archive with the pickle of torch.save or torch.jit.save, or a pickle of torch.save."""
    return head.startswith(LEGACY) or bool(_members(head, path))


def refuse_pytorch(path: Path, options: ImportOptions | Target) -> NoReturn:
    """Raise an `InputError` that shows how to save the weights in a supported format."""
    with path.open("rb") as file:
        scripted = "constants.pkl" in _members(file.read(len(MAGIC)), path)
    target = path.with_suffix(".safetensors")
    loaded = f'torch.load("{path}", map_location="cpu", weights_only=True)'
    unwrap = f"; state = next((state[key] for key in {KEYS} if key in state), state)"
    if scripted:
        unwrap = ""
        loaded = f'torch.jit.load("{path}", map_location="cpu").state_dict()'
    lines = (
        "import torch; from safetensors.torch import save_file",
        f"state = {loaded}{unwrap}",
        f'save_file({{name: tensor.clone().contiguous() for name, tensor in state.items()}}, "{target}")',
    )
    import_command = command("import", target, "--net", "net.yaml", "--output", target.stem)
    raise InputError(
        f"{path} is {'a TorchScript model' if scripted else WHAT}: a pickle, which runs code when it is read",
        expected="an ONNX model, or the state dict as safetensors",
        hint="\n".join(("save the state dict as safetensors, in Python:", *lines, f"then: {import_command}")),
    )


def refuse_pytorch_training(path: Path) -> None:
    """Raise an `InputError` if a file to resume a training from is a pickle of PyTorch."""
    with path.open("rb") as file:
        head = file.read(max(len(MAGIC), len(LEGACY)))
    if is_pytorch(head, path):
        raise InputError(
            f"{path} is {WHAT}: a pickle, which runs code when it is read",
            expected="a checkpoint (.h5) of netspec, or a PyTorch training as safetensors",
            hint='save model and optimizer in PyTorch as docs/formats.md shows under "Resume a PyTorch training"; to '
            "start a new run from the weights only, save the state dict as safetensors and pass it as `--weights`",
        )


def _members(head: bytes, path: Path) -> set[str]:
    """File names of the pickles in a zip archive of PyTorch."""
    if not head.startswith(MAGIC):
        return set()
    try:
        with open_zip(path, WHAT) as archive:
            return _MEMBERS & {name.rpartition("/")[2] for name in archive.namelist()}
    except InputError:
        return set()
