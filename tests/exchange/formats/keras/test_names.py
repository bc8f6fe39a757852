"""Keras's names and paths of a layer's variables, for every sample of every layer with variables."""

from __future__ import annotations

import numpy as np

from netspec.exchange.formats.keras.names import (
    STATES_WITHOUT_VARIABLE,
    KerasVariable,
    from_keras,
    keras_snake,
    to_keras,
    trained_first,
    unique_names,
    variables,
)
from netspec.schema.specs.kinds import LAYERS
from netspec.tools.verification.cases import SampleCase, built
from tests.registry.parametrize import each_class


def states(case: SampleCase) -> dict[str, tuple[int, ...]]:
    """Return the names within the layer, and the shapes."""
    return {name.removeprefix("sample/"): info.value.shape for name, info in built(case, False).builder.states.items()}


@each_class("layer")
def test_every_state_has_a_separate_path_and_invertible_axes(case: SampleCase) -> None:
    shapes = states(case)
    if not shapes:
        return
    actual = variables(case.spec(), shapes)
    assert sorted(variable.state for variable in actual) == sorted(
        name for name in shapes if name not in STATES_WITHOUT_VARIABLE
    )
    assert len({variable.path for variable in actual}) == len(actual)
    for variable in actual:
        array = np.arange(np.prod(shapes[variable.state])).reshape(shapes[variable.state])
        keras_array = to_keras(array, variable)
        np.testing.assert_array_equal(from_keras(keras_array, variable), array)
        if variable.kind == "kernel":
            assert keras_array.shape[-2:] == array.shape[1::-1]


def of(type_: str, names: list[str], **fields: object) -> list[KerasVariable]:
    return variables(LAYERS.parse({"type": type_, **fields}), names)


def test_paths_of_variables_equal_keras() -> None:
    """`model.save_weights` of Keras 3.15 writes these paths."""
    unscaled = of("BatchNormalization", ["beta", "moving_mean", "moving_variance"], scale=False)
    assert [variable.path for variable in unscaled] == ["vars/0", "vars/1", "vars/2"]
    lstm = {"type": "LSTM", "units": 2}
    assert [variable.path for variable in of("Bidirectional", ["backward_lstm/kernel"], layer=lstm)] == [
        "backward_layer/cell/vars/0"
    ]
    cells = [{"type": "LSTMCell", "units": 2}, {"type": "LSTMCell", "units": 2}]
    stack = {"type": "StackedRNNCells", "cells": cells}
    assert [variable.path for variable in of("RNN", ["stacked_rnn_cells/lstm_cell_1/bias"], cell=stack)] == [
        "cell/cells/lstm_cell_1/vars/0"
    ]
    gated = of("MultiHeadAttention", ["value/kernel", "gate/kernel", "query/kernel"], num_heads=1, key_dim=2)
    assert [variable.path for variable in gated] == ["query_dense/vars/0", "_gate_dense/vars/0", "value_dense/vars/0"]


def test_old_files_have_untrained_weights_last() -> None:
    names = ["dense/kernel", "vector_u", "dense/bias"]
    spectral = of("SpectralNormalization", names, layer={"type": "Dense", "units": 3})
    assert [variable.path for variable in spectral] == ["layer/vars/0", "vars/1", "layer/vars/1"]
    assert [variable.state for variable in trained_first(spectral)] == ["dense/kernel", "dense/bias", "vector_u"]
    assert [variable.state for variable in trained_first(spectral, frozen=True)] == names


def test_a_depthwise_kernel_has_adjacent_multipliers() -> None:
    (variable,) = of("DepthwiseConv1D", ["kernel"], kernel_size=1, depth_multiplier=2)
    keras_array = np.array([[[1, 2], [3, 4], [5, 6]]])  # (window, channels, multiplier)
    assert from_keras(keras_array, variable).ravel().tolist() == [1, 2, 3, 4, 5, 6]


def test_classes_in_paths_are_written_as_keras_does() -> None:
    names = ["Conv2D", "PReLU", "LSTM", "MultiHeadAttention", "GlobalMaxPooling1D", "SimpleRNN"]
    assert list(map(keras_snake, names)) == [
        "conv2d", "p_re_lu", "lstm", "multi_head_attention", "global_max_pooling1d", "simple_rnn",
    ]  # fmt: skip
    assert list(unique_names(["dense", "relu", "dense", "dense"])) == ["dense", "relu", "dense_1", "dense_2"]
