"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.cudnn import convolution, normalization

__all__ = ["convolution", "normalization"]
