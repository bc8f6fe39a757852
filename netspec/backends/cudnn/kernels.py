"""All kernels of this backend: importing this module registers them."""

from __future__ import annotations

from netspec.backends.cudnn import attention, convolution, normalization

__all__ = ["attention", "convolution", "normalization"]
