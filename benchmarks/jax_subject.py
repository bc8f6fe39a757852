"""JAX as a subject: a training step of one net, compiled as a whole by XLA."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from benchmarks import catalogue, jax_nets
from benchmarks.catalogue import Net

KEPT = 0.9
"""Share of a running mean or variance that a step keeps."""


class JaxTraining:
    """Forward, backward and an update by SGD with momentum, in one compiled function that reuses its buffers."""

    def __init__(self, net: Net, *, compared: bool) -> None:
        start = perf_counter()
        self.net = net
        self.shapes, apply = jax_nets.build(net.name)
        rate = net.compared_rate if compared else catalogue.STILL
        self._step = jax.jit(partial(_step, apply, rate), donate_argnums=(0, 1, 2))
        images, labels = catalogue.synthetic_batch(net, net.batch_size)
        self.batch = (
            jnp.asarray(images.transpose(0, 2, 3, 1) if images.ndim == 4 else images),
            jnp.asarray(labels.astype(np.int32)),
        )
        self._reset()
        self.step()
        self.compile_seconds = perf_counter() - start

    def _reset(self) -> None:
        weights = catalogue.synthetic_weights(self.shapes)
        self.parameters = [jnp.asarray(jax_nets.laid_out(weight)) for weight in weights]
        self.velocities = [jnp.zeros_like(parameter) for parameter in self.parameters]
        gamma_shapes = [shape for kind, shape in self.shapes if kind == "gamma"]
        self.statistics = [initial(shape) for shape in gamma_shapes for initial in (jnp.zeros, jnp.ones)]

    def step(self) -> float:
        """Run one training step; return the loss before it."""
        states, loss = self._step(self.parameters, self.velocities, self.statistics, *self.batch)
        self.parameters, self.velocities, self.statistics = jax.block_until_ready(states)
        return float(loss)

    def compare(self, folder: Path, steps: int) -> list[float]:
        """Return the losses of the first steps; write the gradients of the first one, in netspec's shapes."""
        self._reset()
        losses = [self.step()]
        for index, velocity in enumerate(self.velocities):  # the first velocity is the gradient
            np.save(folder / f"{index}.npy", jax_nets.netspec_shaped(np.asarray(velocity)))
        return losses + [self.step() for _ in range(steps - 1)]


def _step(
    apply: jax_nets.Apply,
    rate: float,
    parameters: Sequence[Array],
    velocities: Sequence[Array],
    statistics: Sequence[Array],
    images: Array,
    labels: Array,
) -> tuple[tuple[list[Array], list[Array], list[Array]], Array]:
    def loss_of(parameters: Sequence[Array]) -> tuple[Array, list[Array]]:
        logits, moments = apply(parameters, images)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        return -chosen.mean(), moments

    (loss, moments), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters)
    moved = [catalogue.MOMENTUM * v + g for v, g in zip(velocities, gradients, strict=True)]
    new = [p - rate * v for p, v in zip(parameters, moved, strict=True)]
    running = [KEPT * old + (1 - KEPT) * new for old, new in zip(statistics, moments, strict=True)]
    return (new, moved, running), loss


def warm_up() -> None:
    """Run one step of a tiny net."""

    def loss(weight: Array) -> Any:
        return (jnp.ones((1, 2)) @ weight).sum()

    jax.block_until_ready(jax.jit(jax.value_and_grad(loss))(jnp.ones((2, 2))))
