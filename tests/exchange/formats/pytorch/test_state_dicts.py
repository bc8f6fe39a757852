"""State dicts of PyTorch for nets whose layers have the names of its ONNX exporter: module, then operator."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.exchange.formats.pytorch.state_dicts import from_state_dict, to_state_dict

WANTED = {
    "conv1/Conv/kernel": (4, 3, 2, 2),
    "layer1/layer1.0/conv1/Conv/kernel": (4, 4, 1, 1),
    "layer1/layer1.0/norm/BatchNormalization/gamma": (4,),
    "features/features.1/block/block.0/block.0.0/Conv/kernel": (2, 4, 1, 1),
    "layer1/layer1.0/Mul/scale": (2,),
    "encoder/layers.0/linear1/MatMul/kernel": (3, 5),
    "rnn/GRU/kernel": (3, 6),
    "rnn/GRU/recurrent_kernel": (2, 6),
    "rnn/GRU_1/kernel": (2, 6),
    "rnn/GRU_1/recurrent_kernel": (2, 6),
}
MODULES = {
    "conv1.weight": (4, 3, 2, 2),
    "layer1.0.conv1.weight": (4, 4, 1, 1),
    "layer1.0.norm.weight": (4,),
    "features.1.block.0.0.weight": (2, 4, 1, 1),
    "layer1.0.layer_scale": (2, 1, 1),
    "encoder.layers.0.linear1.weight": (5, 3),
    "rnn.weight_ih_l0": (6, 3),
    "rnn.weight_hh_l0": (6, 2),
    "rnn.weight_ih_l1": (6, 2),
    "rnn.weight_hh_l1": (6, 2),
}


def modules(prefix: str = "") -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    return {f"{prefix}{name}": random.normal(size=shape).astype("float32") for name, shape in MODULES.items()}


def test_layers_find_the_arrays_of_their_modules() -> None:
    for state_dict in (modules(), modules("module.")):
        arrays = from_state_dict(state_dict, WANTED)
        assert {name: array.shape for name, array in arrays.items()} == WANTED
        plain = list(state_dict.values())
        for (name, array), pytorch_array in zip(arrays.items(), plain, strict=True):
            if "GRU" not in name and "linear" not in name:
                np.testing.assert_array_equal(array, pytorch_array.reshape(array.shape), err_msg=name)
        np.testing.assert_array_equal(arrays["encoder/layers.0/linear1/MatMul/kernel"], plain[5].T)
        # gate z, the second one in PyTorch
        np.testing.assert_array_equal(arrays["rnn/GRU_1/kernel"][:, :2], plain[8][2:4].T)


def test_arrays_of_other_shapes_are_not_assigned() -> None:
    state_dict = modules() | {"conv1.weight": np.zeros((4, 3, 3, 3), "float32")}
    arrays = from_state_dict(state_dict, WANTED)
    assert "conv1/Conv/kernel" not in arrays
    assert "conv1.weight" in arrays  # keeps its own name


def test_a_module_with_several_direct_arrays_needs_a_map() -> None:
    arrays = from_state_dict(modules() | {"layer1.0.other": np.ones(2, "float32")}, WANTED)
    assert "layer1/layer1.0/Mul/scale" not in arrays
    assert {"layer1.0.layer_scale", "layer1.0.other"} <= arrays.keys()


def test_a_parameter_layer_is_the_array_of_its_name() -> None:
    wanted = {"class_token/value": (1, 3), "stage/block/scale/value": (2, 1, 1), "other/value": (2,)}
    state_dict = {"class_token": np.ones((1, 1, 3)), "stage.block.scale": np.ones((2, 1, 1)), "other": np.ones(5)}
    arrays = from_state_dict(state_dict, wanted)
    assert {name: array.shape for name, array in arrays.items()} == {**wanted, "other/value": (5,)}  # a mismatch
    assert from_state_dict({"class_token.value": np.ones((1, 3))}, wanted).keys() == {"class_token/value"}
    written = to_state_dict(arrays)
    assert {name: array.shape for name, array in written.items()} == {
        "class_token": (1, 3), "stage.block.scale": (2, 1, 1), "other": (5,),
    }  # fmt: skip


ATTENTION = {
    "layers.0/self_attn/Gemm/query/kernel": (4, 2, 2), "layers.0/self_attn/Gemm/query/bias": (2, 2),
    "layers.0/self_attn/Gemm/key/kernel": (4, 2, 2), "layers.0/self_attn/Gemm/key/bias": (2, 2),
    "layers.0/self_attn/Gemm/value/kernel": (4, 2, 2), "layers.0/self_attn/Gemm/value/bias": (2, 2),
    "layers.0/self_attn/Gemm/attention_output/kernel": (2, 2, 4), "layers.0/self_attn/Gemm/attention_output/bias": (4,),
    "y/kernel": (4, 3), "y/bias": (3,),
}  # fmt: skip
OF_ATTENTION = {
    "layers.0.self_attn.in_proj_weight": (12, 4), "layers.0.self_attn.in_proj_bias": (12,),
    "layers.0.self_attn.out_proj.weight": (4, 4), "layers.0.self_attn.out_proj.bias": (4,),
    "head.weight": (3, 4), "head.bias": (3,),
}  # fmt: skip


def test_attention_of_an_encoder_and_the_layer_that_is_called_as_the_output() -> None:
    random = np.random.default_rng(5)
    state_dict = {name: random.normal(size=shape).astype("float32") for name, shape in OF_ATTENTION.items()}
    arrays = from_state_dict(state_dict, ATTENTION)
    assert {name: array.shape for name, array in arrays.items()} == ATTENTION
    packed = state_dict["layers.0.self_attn.in_proj_weight"]
    np.testing.assert_array_equal(arrays["layers.0/self_attn/Gemm/key/kernel"].reshape(4, 4), packed[4:8].T)
    np.testing.assert_array_equal(arrays["y/kernel"], state_dict["head.weight"].T)


@pytest.mark.parametrize("more", [{"other.weight": (3, 4), "other.bias": (3,)}, {"scale": (1,)}], ids=["two", "rest"])
def test_ambiguous_arrays_and_remainders_are_not_assigned(more: dict[str, tuple[int, ...]]) -> None:
    state_dict = {name: np.zeros(shape, "float32") for name, shape in (OF_ATTENTION | more).items()}
    arrays = from_state_dict(state_dict, ATTENTION)
    assert {"head.weight", "head.bias", *more} <= arrays.keys()
    assert "y/kernel" not in arrays
