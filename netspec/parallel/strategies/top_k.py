"""Sparse gradients: the largest numbers are sent."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from netspec.graph.ops.communication import Sending
from netspec.graph.ops.quantize import Largest
from netspec.parallel.encodings import SMALLEST, TOP_K, is_encoded
from netspec.parallel.encodings import TopK as Encoding
from netspec.parallel.strategies.synchronous import Synchronous
from netspec.schema.kinds import STRATEGIES


@STRATEGIES.register
class TopK(Synchronous):
    """Send the largest numbers of each gradient with their places, and keep the others for the next step.

    What is small is added up until it is large, so that nothing is lost. Every worker gets what all have, and adds it
    up: what is sent grows with their number. Biases and small parameters are sent as they are. Aji and Heafield 2017,
    "Sparse communication for distributed gradient descent", arXiv:1704.05021; Lin et al. 2018, "Deep gradient
    compression", arXiv:1712.01887.
    """

    strategy: Literal["top_k"] = "top_k"
    density: Annotated[float, Field(gt=0, le=1)] = 0.01
    """share of the numbers of a gradient that are sent"""
    smallest: PositiveInt = SMALLEST
    """gradients with fewer numbers, and those of vectors, are sent as they are"""

    foreign_fields: ClassVar = {
        **Synchronous.foreign_fields,
        "k": "here it is `density`, the share of the numbers that are sent",
        "ratio": "here it is `density`",
        "sparsity": "here it is `density`, the share of the numbers that are sent: 1 less the sparsity",
        "compress_ratio": "here it is `density`",
    }
    samples: ClassVar = ({}, {"density": 0.1, "smallest": 1})

    def sending(self, shape: tuple[int, ...]) -> Sending:
        """The largest numbers of what is large enough."""
        if not is_encoded(shape, self.smallest):
            return Sending()
        return Sending(f"{TOP_K}{self.density!r}", Largest(Encoding(self.density).count(shape)))
