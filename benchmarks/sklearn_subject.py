"""scikit-learn as a subject: the MLP, by `MLPClassifier.partial_fit`."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks import catalogue
from benchmarks.catalogue import Net

HIDDEN = {"mlp": (256, 128)}


class SklearnTraining:
    """Forward, backward and an update by SGD with momentum, in float32.

    A call of `partial_fit` first validates all its data, which is not part of a step: it receives the rows of many
    batches, and a step is one of these. Nothing is shuffled, and there is no penalty.
    """

    steps_per_call = 50

    def __init__(self, net: Net, *, compared: bool) -> None:
        start = perf_counter()
        warnings.simplefilter("ignore", ConvergenceWarning)
        self.net = net
        images, labels = catalogue.synthetic_batch(net, net.batch_size)
        times = 1 if compared else self.steps_per_call
        self.batch = np.tile(images, (times, 1)), np.tile(labels, times)
        self.rate = net.compared_rate if compared else catalogue.STILL
        self.model = MLPClassifier(
            HIDDEN[net.name], solver="sgd", alpha=0.0, batch_size=net.batch_size, learning_rate_init=self.rate,
            momentum=catalogue.MOMENTUM, nesterovs_momentum=False, shuffle=False, random_state=0,
        )  # fmt: skip
        self.model.partial_fit(*self.batch, classes=np.arange(net.classes))
        self._reset()
        self.step()
        self.compile_seconds = perf_counter() - start

    def _reset(self) -> None:
        model = self.model
        kernels, biases = model.coefs_, model.intercepts_
        kernels_and_biases = zip(kernels, biases, strict=True)
        parts = [
            part for kernel, bias in kernels_and_biases for part in (("kernel", kernel.shape), ("bias", bias.shape))
        ]
        weights = list(catalogue.synthetic_weights(parts))
        for parameter, value in zip([*kernels, *biases], [*weights[::2], *weights[1::2]], strict=True):
            parameter[...] = value
        for velocity in model._optimizer.velocities:
            velocity[...] = 0

    def step(self) -> None:
        """Run one call: `steps_per_call` training steps, or one for a comparison."""
        self.model.partial_fit(*self.batch)

    def compare(self, folder: Path, steps: int) -> list[float]:
        """Return the losses of the first steps; write the gradients of the first one to the folder."""
        self._reset()
        self.step()
        losses = [float(self.model.loss_)]
        velocities, layers = self.model._optimizer.velocities, len(self.model.coefs_)
        for index, velocity in enumerate(velocities):  # kernels, then biases; the first velocity is -rate · gradient
            position = 2 * index if index < layers else 2 * (index - layers) + 1
            np.save(folder / f"{position}.npy", velocity / np.float32(-self.rate))
        for _ in range(steps - 1):
            self.step()
            losses.append(float(self.model.loss_))
        return losses


def warm_up() -> None:
    """Run one step of a tiny net."""
    rows = np.eye(2, dtype=np.float32)
    MLPClassifier((2,), solver="sgd", batch_size=2).partial_fit(rows, [0, 1], classes=[0, 1])
