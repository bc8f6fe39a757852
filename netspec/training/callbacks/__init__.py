"""Callbacks: actions between training steps. `base.py` documents the hooks, `Callback` is the class to extend."""

from __future__ import annotations

from netspec.training.callbacks.base import Callback, CallbackSpec

__all__ = ["Callback", "CallbackSpec"]
