"""`Classifier` and `Regressor`: nets with scikit-learn's interface, trained by `netspec.train`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.load import Overrides, load_net
from netspec.schema.specs.net import NetSpec
from netspec.schema.yaml.reader import parse_yaml
from netspec.schema.yaml.tree import Map
from netspec.sklearn.nets import NetParts, check_classes, class_targets, classifier_net, regressor_net, value_targets
from netspec.tools.model_inputs import find_in_folder
from netspec.tools.specs import load_train
from netspec.training.events import Event, format_event
from netspec.training.inference.decoding import decoders_of
from netspec.training.inference.model import Model, assign_arrays
from netspec.training.inference.model import load as load_model
from netspec.training.run import run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

LARGEST_SEED = 2**31 - 1


class NetEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no type information
    """Base of both estimators: parameters, training, and a state that can be pickled."""

    _stratified = False
    """Whether held-out samples have the same shares of the target's values as the others."""

    def __init__(
        self,
        net: str | PathLike[str] | Mapping[str, Any] | None = None,
        *,
        solver: Mapping[str, Any] | None = None,
        max_epochs: int = 100,
        batch_size: int = 32,
        validation_fraction: float | None = 0.1,
        patience: int = 10,
        overrides: Overrides = (),
        random_state: Any = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.net = net
        self.solver = solver
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.overrides = overrides
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _train(self, net: Any, X: Array, y: Array) -> None:
        """Train a net on features and on `y` as `_targets` converts it, and keep the weights of the best evaluation."""
        net = net if isinstance(net, Mapping) else str(net)
        parts = NetParts.of(load_net(net))
        spec = load_train(self._training_file(net, len(X), parts), self.overrides)
        targets = self._targets(y, spec.net, parts)
        self._dtype = "float64" if spec.train.precision == "float64" else "float32"
        samples = {parts.features: self._features(X, spec.net, parts), parts.target: targets}
        with TemporaryDirectory(prefix="netspec-") as folder:
            finished = run(
                spec, run_dir=Path(folder) / "run", samples={"train": samples}, device=self.device,
                listeners=[self._report],
            )  # fmt: skip
            self.history_ = finished.history
            _, weights = find_in_folder(finished.run_dir)
            self.model_ = load_model(spec.net, weights, device=self.device, precision=spec.train.precision)

    def _training_file(self, net: object, samples: int, parts: NetParts) -> dict[str, Any]:
        """Return the content of the training file."""
        seed = int(check_random_state(self.random_state).randint(LARGEST_SEED))
        split: dict[str, Any] = {"source": "python", "batch_size": self.batch_size, "shuffle": True}
        loop: dict[str, Any] = {"max_epochs": self.max_epochs, "checkpoint_every": 0, "seed": seed}
        if self.validation_fraction is not None and int(samples * self.validation_fraction + 0.5) >= 1:
            split["split"] = {"validation": self.validation_fraction, "seed": seed}
            split["split"] |= {"stratify": parts.target} if self._stratified else {}
            loop["early_stopping"] = {"patience": self.patience}
        return {
            "netspec": 1,
            "net": net,
            "data": {"train": split},
            "solver": {"type": "Adam", "learning_rate": 0.001} if self.solver is None else self.solver,
            "train": loop,
        }

    def _targets(self, y: Array, net: NetSpec, parts: NetParts) -> Array:
        """Return the targets in the shape that the net's loss takes."""
        raise NotImplementedError

    def _features(self, X: Array, net: NetSpec, parts: NetParts) -> Array:
        """Return features in the type of the net's input. Raises `ValueError` for values that it cannot hold."""
        if net.inputs[parts.features].dtype != "float32":
            return X
        features: Array = check_array(X, dtype=self._dtype, allow_nd=True, input_name="X", estimator=self)
        return features

    def _validated(self, X: Any, *y: Any, **checks: Any) -> Any:
        """Return features, and targets if there are any, as arrays; sparse ones become dense. Raises `ValueError`."""
        X = X.toarray() if hasattr(X, "toarray") else X
        return validate_data(self, X, *y, dtype="numeric", allow_nd=True, **checks)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's description of the estimator: it takes sparse features."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _outputs(self, X: Any) -> Array:
        """Return the net's first output for features, (N, …)."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        parts = NetParts.of(self.model_.spec)
        return self.model_.predict({parts.features: self._features(X, self.model_.spec, parts)})[parts.output]

    def _report(self, event: Event) -> None:
        """Print an event of the training if `verbose`; a warning of the training is a Python warning in any case."""
        if event["event"] == "warning":
            warnings.warn(event["message"], stacklevel=2)
        elif self.verbose and event["event"] in ("start", "log", "test", "note"):
            print(format_event(event))  # noqa: T201  # that is what `verbose` asks for

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the net as YAML and its weights as arrays, for pickle and joblib."""
        state = dict(super().__getstate__())
        model = state.pop("model_", None)
        if isinstance(model, Model):
            state["model_state"] = {"net": canonical_yaml(model.spec), "arrays": dict(model.compiler.weights())}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore the state, and compile the net on the device that `device` names."""
        state = dict(state)
        saved = state.pop("model_state", None)
        super().__setstate__(state)
        if saved is not None:
            tree = parse_yaml(saved["net"], "the net of a pickled estimator")
            assert isinstance(tree, Map)
            self.model_ = load_model(load_net(tree), device=self.device, precision=self._dtype)
            assign_arrays(self.model_.compiler, saved["arrays"], source="a pickled estimator")


class Classifier(ClassifierMixin, NetEstimator):  # type: ignore[misc]  # scikit-learn has no type information
    """A net that predicts the class of each sample, with scikit-learn's interface.

    - `net`: path of a net file, or a mapping with its content. Its loss compares the first output with an input for the
      target: class indices, or one-hot if that input has one element per class. By default a small net with two
      hidden layers, whose width depends on the number of samples.
    - `solver`: mapping as in a training file, such as `{"type": "SGD", "learning_rate": 0.1}`. By default Adam with
      learning rate 0.001.
    - `max_epochs`, `batch_size`: length of the training, in passes over the data, and samples per step.
    - `validation_fraction`: share of the samples that is held out, with all classes in proportion. The training ends if
      the loss on them does not improve for `patience` epochs, and the weights of the best epoch are kept. None, or a
      share of less than half a sample: no sample is held out.
    - `overrides`: other changes of the training file, such as `{"train.precision": "float64"}`.
    - `random_state`: seed, `RandomState` or None, as everywhere in scikit-learn.
    - `device`: `"auto"`, or a name that `netspec.devices()` lists.
    - `verbose`: 1 prints losses during the training.

    After `fit`: `classes_`, `n_features_in_`, `model_` (a `netspec.Model`), `history_` (events of the log). Features
    have the shape (N, features), or that of the net's input, such as (N, 3, 32, 32) for images. Sparse features
    become dense.

        >>> Classifier(random_state=0).fit(X, y).predict_proba(X)
    """

    _stratified = True

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features (N, …) and labels (N,). Raises `ValueError` or `InputError` if they do not fit the net."""
        X, y = self._validated(X, y)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"Classifier needs samples of 2 classes or more: the data has {count} class")
        self._train(classifier_net(X.shape[1:], len(X), count) if self.net is None else self.net, X, indices)
        return self

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each sample, (N,)."""
        best = self.predict_proba(X).argmax(axis=1)
        classes: Array = self.classes_[best]
        return classes

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class in `classes_`, (N, classes)."""
        outputs = self._outputs(X)
        decoder = decoders_of(self.model_.spec, self.model_.preprocessing)[NetParts.of(self.model_.spec).output]
        assert decoder.probabilities is not None  # `check_classes` refuses other nets
        probabilities: Array = decoder.probabilities(outputs).reshape(len(outputs), -1)
        return probabilities.astype(outputs.dtype)

    def _targets(self, y: Array, net: NetSpec, parts: NetParts) -> Array:
        check_classes(net, parts.output, len(self.classes_))
        return class_targets(y, len(self.classes_), net.inputs[parts.target])


class Regressor(RegressorMixin, NetEstimator):  # type: ignore[misc]  # scikit-learn has no type information
    """A net that predicts one value or several for each sample, with scikit-learn's interface.

    Parameters are those of `Classifier`. The default net learns normalized targets and predicts in their units; a net
    of your own learns targets as they are, (N,) or (N, K).

        >>> Regressor(random_state=0).fit(X, y).score(X_test, y_test)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features (N, …) and targets (N,) or (N, K). Raises the errors of `Classifier.fit`."""
        X, y = self._validated(X, y, multi_output=True, y_numeric=True)
        self._target_shape = y.shape[1:]
        columns = y.reshape(len(y), -1).astype(np.float64)
        self._train(regressor_net(X.shape[1:], columns) if self.net is None else self.net, X, columns)
        return self

    def predict(self, X: Any) -> Array:
        """Return the values of each sample, in the shape of the targets: (N,) or (N, K)."""
        outputs = self._outputs(X)
        return outputs.reshape(len(outputs), *self._target_shape).astype(np.float64)

    def _targets(self, y: Array, net: NetSpec, parts: NetParts) -> Array:
        return value_targets(y, net.inputs[parts.target])

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's description of the estimator: several targets are possible."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
