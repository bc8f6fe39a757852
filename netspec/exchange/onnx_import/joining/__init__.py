"""Layers of a draft that are one layer together: what a person would have written, from what a program had to say.

It is done after the nodes have become layers: by then all ways to write a product or a scale are one, and shapes are
known. Each of the other modules is a family; a module put here is found by itself.
"""

from __future__ import annotations

from netspec.exchange.onnx_import.joining.chains import join

__all__ = ["join"]
