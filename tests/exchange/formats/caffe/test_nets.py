"""Complete Caffe nets: phases, versions, inputs, losses, weights, and reports of what is not supported."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.exchange.formats.caffe.blobs import array_blob
from netspec.exchange.formats.caffe.proto.binary import encode
from netspec.exchange.formats.caffe.proto.text import parse
from netspec.exchange.formats.caffe.upgrade import upgraded
from netspec.schema.yaml.flow_style import flow
from netspec.training.inference.model import load
from tests.exchange.formats.caffe.prototxt import LABELLED, LOSS, dense, drafted, failure, lines, spec_of, with_input

# Losses and metrics


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ('"SoftmaxWithLoss"', "{type: SparseCategoricalCrossentropy, from: [y, label], from_logits: true}"),
        ('"SoftmaxWithLoss" loss_weight: 0.3 loss_param { ignore_label: 255 normalization: FULL }',
         ("{type: SparseCategoricalCrossentropy, from: [y, label], from_logits: true, ignore_class: 255, "
         "reduction: full, weight: 0.3}")),
        ('"SoftmaxWithLoss" loss_param { normalize: false }',
         "{type: SparseCategoricalCrossentropy, from: [y, label], from_logits: true, reduction: batch_size}"),
        ('"MultinomialLogisticLoss"', "{type: MultinomialLogistic, from: [y, label]}"),
        ('"HingeLoss" hinge_loss_param { norm: L2 }', "{type: OneVsRestHinge, from: [y, label], norm: L2}"),
    ],
)  # fmt: skip
def test_losses_of_classes(layer, expected):
    text = LABELLED + dense("y", "x") + f'layer {{ name: "loss" bottom: "y" bottom: "label" type: {layer} }}'
    net_draft = drafted(text)
    assert [flow(loss) for loss in net_draft.draft.losses] == [expected]
    assert net_draft.draft.inputs == {"x": {"shape": [1, 2, 2]}, "label": {"shape": [], "dtype": "int32"}}
    spec_of(net_draft)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("EuclideanLoss", "{type: Euclidean, from: [y, label]}"),
        # Caffe sums over all elements of a sample; netspec averages over the last axis.
        ("SigmoidCrossEntropyLoss",
         "{type: BinaryCrossentropy, from: [y, label], from_logits: true, reduction: batch_size, weight: 3.0}"),
    ],
)  # fmt: skip
def test_losses_of_values(type_, expected):
    data = 'layer { name: "d" type: "HDF5Data" top: "x" top: "label" }\n'
    text = data + dense("y", "x") + f'layer {{ name: "loss" bottom: "y" bottom: "label" type: "{type_}" }}'
    net_draft = drafted(text, shapes={"x": (5,)})
    assert [flow(loss) for loss in net_draft.draft.losses] == [expected]
    assert net_draft.draft.inputs["label"] == {"shape": [3]}  # the shape of the prediction


def test_the_loss_of_sigmoids_equals_caffe():
    data = 'layer { name: "d" type: "HDF5Data" top: "x" top: "t" }\n'
    net_draft = drafted(
        data + 'layer { name: "y" type: "Power" bottom: "x" top: "y" }\n'
        'layer { name: "loss" bottom: "y" bottom: "t" type: "SigmoidCrossEntropyLoss" }',
        shapes={"x": (2, 5)},
    )
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(4, 2, 5)).astype(np.float32), rng.random((4, 2, 5)).astype(np.float32)
    losses, _ = load(spec_of(net_draft)).loss_and_gradients({"x": x, "t": t})
    expected = (np.log1p(np.exp(x.astype(np.float64))) - x * t).sum() / 4
    assert sum(losses.values()) == pytest.approx(expected, rel=1e-5)  # float32 sums of 40 terms


def test_the_matrix_of_a_loss_is_read_from_its_file(tmp_path):
    matrix = np.array([[1.0, 0.25, 0.0], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]], "float32")
    (tmp_path / "h.binaryproto").write_bytes(encode(array_blob(matrix[None, None])))
    loss = f'type: "InfogainLoss" infogain_loss_param {{ source: "{tmp_path / "h.binaryproto"}" }}'
    net_draft = drafted(LABELLED + dense("y", "x") + f'layer {{ name: "loss" bottom: "y" bottom: "label" {loss} }}')
    (loss_fields,) = net_draft.draft.losses
    assert (loss_fields["type"], loss_fields["from_logits"]) == ("InfoGain", True)
    assert loss_fields["matrix"] == matrix.tolist()
    spec_of(net_draft)


def test_several_losses_have_names_and_unused_ones_are_noted():
    first_loss, second_loss, watched = (
        LOSS.replace("loss", name).replace("type", f"loss_weight: {weight} type")
        for name, weight in (("a/loss", 1), ("b", 2), ("c", 0))
    )
    net_draft = drafted(LABELLED + dense("y", "x") + first_loss + second_loss + watched)
    assert [(loss["name"], loss.get("weight", 1)) for loss in net_draft.draft.losses] == [("a/loss", 1), ("b", 2)]
    assert net_draft.notes == ["`c` is left out: its loss_weight is 0, so that it is only reported"]
    accuracy = LOSS.replace('"loss"', '"loss/acc"').replace("SoftmaxWithLoss", "Accuracy")
    net_draft = drafted(LABELLED + dense("y", "x") + LOSS + accuracy.replace(" }", " accuracy_param { top_k: 2 } }"))
    assert net_draft.draft.metrics == [
        {"name": "loss_acc", "type": "SparseTopKCategoricalAccuracy", "from": ["y", "label"], "k": 2}
    ]


def test_pairs_share_their_weights():
    slices = 'layer { name: "s" type: "Slice" bottom: "x" top: "a" top: "b" }\n'
    shared = 'param { name: "w" lr_mult: 1 } param { name: "v" lr_mult: 2 }'
    data = 'layer { name: "data" type: "Data" top: "x" top: "sim" }\n'
    text = data + slices + dense("f", "a", shared) + dense("g", "b", shared)
    text += 'layer { name: "loss" type: "ContrastiveLoss" bottom: "f" bottom: "g" bottom: "sim" }'
    net_draft = drafted(text, shapes={"x": (2, 4)})
    assert [line for line in lines(net_draft) if line.startswith("{name: f,")] == [
        "{name: f, type: Dense, learning_rate_multiplier: {bias: 2}, units: 3}"
    ]
    assert lines(net_draft)[-1] == "{name: g, type: Dense, share: f, units: 3}"
    assert net_draft.draft.losses == [{"type": "Contrastive", "from": ["f", "g", "sim"]}]
    assert net_draft.draft.outputs == ["f", "g"]


def test_multipliers():
    text = LABELLED + dense("a", "x", "param { lr_mult: 0 } param { lr_mult: 0 }")
    text += dense("b", "a", "param { lr_mult: 2 decay_mult: 0 } param { lr_mult: 2 decay_mult: 0.5 }")
    text += dense("y", "b", "param { decay_mult: 0 }")
    rows = lines(drafted(text + LOSS))
    assert rows[1] == "{name: a, type: Dense, trainable: false, units: 3}"
    assert rows[2] == (
        "{name: b, type: Dense, learning_rate_multiplier: 2, weight_decay_multiplier: {kernel: 0, bias: 0.5}, units: 3}"
    )
    assert rows[3] == "{name: y, type: Dense, weight_decay_multiplier: {kernel: 0}, units: 3}"
    assert "multiplier" not in drafted(text).draft.text()  # multipliers do not matter without losses


# Phases


def test_one_net_for_training_and_testing():
    train = LABELLED.replace("top:", "include { phase: TRAIN } top:", 1)
    test = LABELLED.replace("top:", "include { phase: TEST } top:", 1)
    drop = 'layer { name: "drop" type: "Dropout" bottom: "a" top: "a" include { phase: TRAIN } }\n'
    prob = 'layer { name: "prob" type: "Softmax" bottom: "y" top: "prob" include { phase: TEST } }\n'
    net_draft = drafted(train + test + dense("a", "x") + drop + dense("y", "a") + LOSS + prob)
    assert [layer.name for layer in net_draft.draft.layers] == ["a_flatten", "a", "drop", "y", "prob"]
    assert net_draft.draft.outputs == []  # by default, the output is that of the last layer
    assert [sorted(node.phases) for node in net_draft.data] == [["TRAIN"], ["TEST"]]
    only = drafted(train + test + dense("a", "x") + drop + dense("y", "a") + LOSS + prob, phase="test")
    assert [layer.name for layer in only.draft.layers] == ["a_flatten", "a", "y", "prob"]


def test_stages_and_levels():
    text = with_input("", 2, 4)
    text += dense("a", "x", 'include { stage: "deploy" not_stage: "val" min_level: 1 }')
    text += dense("b", "x", 'exclude { stage: "deploy" }') + dense("c", "x", "exclude { max_level: 0 }")
    assert [layer.name for layer in drafted(text).draft.layers] == ["b"]
    assert [layer.name for layer in drafted(text, stages=("deploy",), level=1).draft.layers] == ["a", "c"]
    assert [layer.name for layer in drafted(text, stages=("deploy", "val"), level=2).draft.layers] == ["c"]
    assert [layer.name for layer in drafted(text + 'state { stage: "deploy" level: 1 }').draft.layers] == ["a", "c"]
    assert "no layer mentions the stage `vall`" in failure(text, stages=("vall",))


def test_statistics_that_only_training_moves():
    text = "".join(
        f'layer {{ name: "bn" type: "BatchNorm" bottom: "x" top: "y" include {{ phase: {phase} }} '
        f"batch_norm_param {{ use_global_stats: {frozen} }} }}\n"
        for phase, frozen in (("TRAIN", "false"), ("TEST", "true"))
    )
    net_draft = drafted(LABELLED + text + dense("z", "y") + LOSS.replace('"y"', '"z"'))
    assert lines(net_draft)[0] == (
        "{name: bn, type: BatchNormalization, epsilon: 1e-05, center: false, scale: false, momentum: 0.999}"
    )
    fixed = LABELLED + text.splitlines()[0].replace("include { phase: TRAIN }", "").replace("false", "true")
    fixed += '\nlayer { name: "s" type: "Scale" bottom: "y" top: "y" }\n' + dense("z", "y")
    assert lines(drafted(fixed + LOSS.replace('"y"', '"z"')))[:2] == [
        "{name: bn, type: BatchNormalization, trainable: false, epsilon: 1e-05, center: false, scale: false}",
        "{name: s, type: Scale}",
    ]


def test_forms_that_differ_are_reported():
    text = with_input("", 2, 4) + dense("a", "x", "include { phase: TRAIN }").replace('top: "a"', 'top: "x"')
    message = failure(text + dense("y", "x"))
    assert "the layer `y` reads other blobs in testing than in training" in message
    assert "--phase train" in message
    other = dense("a", "x", "include { phase: TRAIN }") + dense("a", "x", "include { phase: TEST }").replace("3", "4")
    assert "the layer `a` differs between testing and training" in failure(with_input(other, 2, 4))
    mixed = dense("a", "x", "include { phase: TRAIN } exclude { phase: TEST }")
    assert "rules to include it and rules to exclude it" in failure(with_input(mixed, 2, 4))


# Versions


V0 = """
name: "old" input: "x" input_dim: 2 input_dim: 1 input_dim: 8 input_dim: 8
layers { layer { name: "pad1" type: "padding" pad: 2 } bottom: "x" top: "pad1" }
layers { layer { name: "conv1" type: "conv" num_output: 4 kernelsize: 5 biasterm: false group: 1 stride: 2
  weight_filler { type: "gaussian" std: 0.01 } blobs_lr: 1 weight_decay: 0 } bottom: "pad1" top: "conv1" }
layers { layer { name: "relu1" type: "relu" } bottom: "conv1" top: "conv1" }
layers { layer { name: "pool1" type: "pool" pool: AVE kernelsize: 2 stride: 2 } bottom: "conv1" top: "pool1" }
layers { layer { name: "norm1" type: "lrn" local_size: 3 alpha: 0.5 } bottom: "pool1" top: "norm1" }
layers { layer { name: "fc" type: "innerproduct" num_output: 2 } bottom: "norm1" top: "fc" }
layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.3 } bottom: "fc" top: "fc" }
layers { layer { name: "prob" type: "softmax" } bottom: "fc" top: "prob" }
"""


def test_the_first_version():
    assert lines(drafted(V0)) == [
        (
            "{name: conv1, type: Conv2D, filters: 4, kernel_size: 5, strides: 2, padding: 2, activation: relu, "
            "use_bias: false, kernel_initializer: {type: RandomNormal, stddev: 0.01}}"
        ),
        "{name: pool1, type: AveragePooling2D, ceil_mode: true}",
        "{name: norm1, type: LocalResponseNormalization, size: 3, alpha: 0.5}",
        "{name: fc_flatten, type: Flatten}",
        "{name: fc, type: Dense, units: 2}",
        "{name: drop, type: Dropout, rate: 0.3}",
        "{name: prob, type: Softmax}",
    ]
    message = failure(V0.replace("local_size: 3", "kernelsize: 3").replace('"softmax"', '"sofmax"'))
    assert "net.prototxt:8:44: error: a layer of type `lrn` has no `kernelsize`" in message
    assert "`sofmax` is not a type of layers" in message


def test_the_second_version():
    text = """
    layers { name: "d" type: IMAGE_DATA top: "x" top: "label"
      image_data_param { new_height: 4 new_width: 5 mirror: true } }
    layers { name: "y" type: INNER_PRODUCT bottom: "x" top: "y" blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0
      param: "w" param: "b" blob_share_mode: STRICT inner_product_param { num_output: 3 } include { phase: TRAIN } }
    layers { name: "loss" type: SOFTMAX_LOSS bottom: "y" bottom: "label" loss_weight: 2 }
    """
    net = upgraded(parse(text, "NetParameter", "net.prototxt"))
    data, dense_, _ = net["layer"]
    assert data["transform_param"]["mirror"] is True
    assert [param["name"] for param in dense_["param"]] == ["w", "b"]
    assert [param["decay_mult"] for param in dense_["param"]] == [1, 0]
    assert [param["share_mode"] for param in dense_["param"]] == ["STRICT", "STRICT"]
    assert str(dense_.location("type")) == "net.prototxt:4:24"
    net_draft = drafted(text, phase="train")
    assert net_draft.draft.inputs["x"] == {"shape": [3, 4, 5]}
    assert net_draft.draft.losses[0]["weight"] == 2
    assert "layers of two versions" in failure(text + dense("z", "y"))
    assert "has no type" in failure('layers { name: "a" type: NONE bottom: "x" }')


def test_inputs_of_old_nets():
    text = 'input: "a" input_shape { dim: 1 dim: 3 } input: "b" input_shape { dim: 1 dim: 4 dim: 2 dim: 2 }\n'
    net_draft = drafted(text + dense("c", "a") + dense("d", "b"))
    assert net_draft.draft.inputs == {"a": {"shape": [3]}, "b": {"shape": [4, 2, 2]}}
    assert "the input `b` has no shape" in failure('input: "a" input: "b" input_dim: [1, 2, 3, 4]' + dense("c", "a"))
    message = failure('input: "a"' + dense("c", "a"))
    assert "the shape of the input `a` is not in the file" in message
    assert "--shape a=" in message


# Facts from data layers


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        ('"MemoryData" memory_data_param { channels: 2 height: 3 width: 4 }', [2, 3, 4]),
        ('"DummyData" dummy_data_param { shape { dim: 8 dim: 5 } }', [5]),
        ('"DummyData" dummy_data_param { num: 8 channels: 5 height: 1 width: 2 }', [5, 1, 2]),
        ('"WindowData" transform_param { crop_size: 7 }', [3, 7, 7]),
        ('"ImageData" image_data_param { new_height: 3 new_width: 4 is_color: false }', [1, 3, 4]),
        ('"Data" transform_param { crop_size: 7 mean_value: [1, 2, 3] }', [3, 7, 7]),
    ],
)  # fmt: skip
def test_shapes_of_data(layer, shape):
    net_draft = drafted(f'layer {{ name: "d" top: "x" type: {layer} }}' + dense("y", "x"))
    assert net_draft.draft.inputs == {"x": {"shape": shape}}
    assert not net_draft.notes


def test_a_mean_image_has_the_shape(tmp_path):
    mean = array_blob(np.zeros((1, 2, 5, 6), np.float32))
    (tmp_path / "mean.binaryproto").write_bytes(encode(mean))
    text = 'layer { name: "d" type: "Data" top: "x" transform_param { mean_file: "some/where/mean.binaryproto" } }'
    assert drafted(text + dense("y", "x"), folder=tmp_path).draft.inputs["x"] == {"shape": [2, 5, 6]}
    assert "the shape of the input `x`" in failure(text + dense("y", "x"))
    guessed = drafted('layer { name: "d" type: "Data" top: "x" transform_param { crop_size: 4 } }' + dense("y", "x"))
    assert guessed.notes == ["`x` is assumed to be color images, since the file does not specify it: see --shape"]


def test_integer_inputs_follow_from_their_readers():
    data = 'layer { name: "d" type: "HDF5Data" top: "words" top: "both" top: "label" }\n'
    text = (
        data + 'layer { name: "y" type: "Embed" bottom: "words" top: "y" embed_param { input_dim: 5 num_output: 3 } }\n'
    )
    text += 'layer { name: "s" type: "Slice" bottom: "both" top: "p" top: "q" }\n'
    text += dense("f", "y") + "".join(
        f'layer {{ name: "l{part}" type: "SoftmaxWithLoss" bottom: "f" bottom: "{part}" }}\n' for part in "pq"
    )
    net_draft = drafted(text, shapes={"words": (4,), "both": (2,)})
    assert net_draft.draft.inputs == {
        "words": {"shape": [4], "dtype": "int32"},
        "both": {"shape": [2], "dtype": "int32"},
    }


def test_inputs_without_readers_are_not_integers():
    flat = 'layer { name: "y" type: "Flatten" bottom: "x" top: "y" }\n'
    assert drafted(with_input(flat, 2, 3, 4)).draft.inputs == {"x": {"shape": [3, 4]}}


def test_targets_that_do_not_fit_are_reported_with_their_position():
    text = LABELLED + dense("y", "x") + LOSS.replace('"label"', '"x"')
    message = failure(text)
    assert "net.prototxt:3:1: error: layer `loss` (SoftmaxWithLoss): class indices must be integers" in message
    loss = 'layer { name: "e" type: "EuclideanLoss" bottom: "y" bottom: "x" }'
    assert "layer `e` (EuclideanLoss): prediction and target differ in shape" in failure(
        LABELLED + dense("y", "x") + loss
    )


def test_class_indices_that_are_compared_are_integers():
    data = 'layer { name: "d" type: "HDF5Data" top: "x" top: "label" }\n'
    loss = 'layer { name: "e" type: "EuclideanLoss" bottom: "z" bottom: "label" }\n'
    text = data + dense("y", "x") + dense("z", "x").replace("num_output: 3", "num_output: 1") + LOSS + loss
    net_draft = drafted(text, shapes={"x": (4,)})
    assert net_draft.draft.inputs["label"] == {"shape": [], "dtype": "int32"}
    spec_of(net_draft)


# Unsupported layers and mistakes


def test_a_layer_that_writes_nothing():
    text = with_input('layer { name: "a" type: "AbsVal" bottom: "x" }\n', 2, 4)
    assert "layer `a` (AbsVal): it must have one top, got none" in failure(text)


def test_everything_is_reported_at_once_with_its_position():
    text = with_input(
        'layer { name: "p" type: "Python" bottom: "x" top: "p" python_param { module: "os" layer: "system" } }\n'
        'layer { name: "n" type: "Normalise" bottom: "x" top: "n" norm_param { eps: 1 } }\n'
        'layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_outputs: 3 } }\n'
        'layer { name: "f" type: "Filter" bottom: "x" bottom: "x" top: "f" }\n'
        'layer { name: "r" type: "Relu" bottom: "q" top: "r" }\n'
        'layer { name: "k" type: "Concat" bottom: "x" bottom: "x" top: "k" concat_param { axis: 0 } }\n'
        'layer { name: "after" type: "AbsVal" bottom: "p" top: "after" }\n'
        'nmae: "x"\n',
        2, 4,
    )  # fmt: skip
    message = failure(text)
    for part in (
        "net.prototxt:2:19: error: layer `p` (Python): it runs code from another file",
        "net.prototxt:3:19: error: layer `n` (Normalise) has a type that Caffe does not have",
        "net.prototxt:4:80: error: ConvolutionParameter of Caffe has no `num_outputs`",
        "hint: did you mean `num_output`?",
        "net.prototxt:5:19: error: layer `f` (Filter): the number of samples",
        "net.prototxt:6:32: error: no layer before this one writes the blob `q`",
        "net.prototxt:6:19: error: layer `r` (Relu) has a type that Caffe does not have",
        "hint: did you mean `ReLU`?",
        "net.prototxt:7:82: error: layer `k` (Concat): it operates along axis 0",
        "net.prototxt:9:1: error: NetParameter of Caffe has no `nmae`",
    ):
        assert part in message
    assert "after" not in message  # the layer's input is missing because of an error that is already reported
    assert message.endswith("8 errors")


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("Convolution|convolution_param { kernel_size: 1 }", "`num_output` is missing"),
        ("Convolution|convolution_param { num_output: 2 }", "`kernel_size` is missing"),
        ("Convolution|convolution_param { num_output: 2 kernel_size: 9 }", "y"),
        ("Convolution|convolution_param { num_output: 2 kernel_size: [1, 1, 1] }", "3 values for 2 spatial axes"),
        ("Convolution|convolution_param { num_output: 2 kernel_size: 1 kernel_h: 1 kernel_w: 1 }", "are both given"),
        ("Convolution|convolution_param { num_output: 2 kernel_h: 1 }", "must be given together"),
        ("Convolution|convolution_param { num_output: 2 kernel_size: 1 stride: 0 }", "`stride` must be ≥ 1, got 0"),
        ("Convolution|convolution_param { num_output: 2 kernel_size: 1 stride_h: 1 }", "`stride` must be ≥ 1, got 0"),
        ("Convolution|convolution_param { num_output: 2 kernel_size: 1 axis: 2 }", "channels must be axis 1"),
        ("Convolution|convolution_param { num_output: 2 kernel_size: 1 group: 2 }", "3 input channels cannot be split"),
        ("Convolution|convolution_param { num_output: 4000000000 kernel_size: 4000000000 }", "y"),
        ("Pooling", "`kernel_size` is missing or 0"),
        ("Pooling|pooling_param { kernel_size: 2 kernel_h: 1 }", "are both given"),
        ("InnerProduct|inner_product_param { num_output: 2 axis: 0 }", ", the batch"),
        ("InnerProduct|inner_product_param { num_output: 2 axis: 7 }", "axis 7 is out of range"),
        ("Eltwise", "it needs 2 bottoms or more, got 1"),
        ("Slice|slice_param { slice_point: [2, 1] }", "1 slice points|2 slice points"),
        ("Reshape|reshape_param { shape { dim: -1 dim: 7 } }", "it changes axis 0"),
        ("Reshape|reshape_param { shape { dim: 0 dim: -2 } }", "is not a valid shape"),
        ("Reduction", ", the batch"),
        ("LRN|lrn_param { local_size: 4 }", "`local_size` must be odd, got 4"),
        ("Scale|scale_param { num_axes: 0 }", "one value for all"),
        ("Dropout|dropout_param { dropout_ratio: 1.5 }", "y"),
        ("InnerProduct|inner_product_param { num_output: 2 weight_filler { type: 'xavierr' } }", "no filler `xavierr`"),
        ("Tile|tile_param { tiles: 0 }", "y"),
        ("Embed|embed_param { num_output: 2 }", "`input_dim` is missing"),
    ],
)  # fmt: skip
def test_impossible_layers_are_reported(layer, expected):
    type_, _, inside = layer.partition("|")
    text = f'layer {{ name: "y" type: "{type_}" bottom: "x" top: "y" {inside} }}'
    message = failure(with_input(text, 2, 3, 4, 4))
    assert "net.prototxt:2:" in message
    assert any(part in message for part in expected.split("|"))


def test_nets_that_are_wired_wrong():
    duplicate = dense("a", "x") + dense("b", "x").replace('top: "b"', 'top: "a"')
    assert "the blob `a` is written by two layers" in failure(with_input(duplicate, 2, 4))
    assert "net.prototxt has no layers" in failure("name: 'a'")
    same = dense("x", "x") + dense("x", "x", "").replace('top: "x"', 'top: "z"')
    net_draft = drafted(with_input(same, 2, 4))
    assert [layer.name for layer in net_draft.draft.layers] == ["x_2", "x_3"]
    spec_of(net_draft)


def test_a_deep_net_is_read_in_time():
    layers = "".join(dense(f"l{k + 1}", f"l{k}" if k else "x") for k in range(1000))
    assert len(drafted(with_input(layers, 2, 3)).draft.layers) == 1000
