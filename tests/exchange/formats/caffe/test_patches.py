"""Caffe layers that extract parts of tensors: Im2col, and Crop with axis 0."""

from __future__ import annotations

import numpy as np

from tests.exchange.formats.caffe.prototxt import answers, drafted, failure, lines, with_input


def test_patches_are_those_that_a_convolution_reads():
    """The product of each patch with a kernel equals the convolution."""
    window = "convolution_param { num_output: 3 kernel_h: 2 kernel_w: 3 pad: 1 stride: 2 dilation: 2 bias_term: false }"
    point = "convolution_param { num_output: 3 kernel_size: 1 }"
    convolution_layer = f'layer {{ name: "y" type: "Convolution" bottom: "p" top: "y" {point} }}'
    cut = f'layer {{ name: "p" type: "Im2col" bottom: "x" top: "p" {window} }}\n{convolution_layer}'
    convolution = f'layer {{ name: "y" type: "Convolution" bottom: "x" top: "y" {window} }}'
    random = np.random.default_rng(0)
    kernel, x = (random.normal(size=shape).astype(np.float32) for shape in ((3, 4, 2, 3), (2, 4, 9, 8)))
    (expected,) = answers(drafted(with_input(convolution, 2, 4, 9, 8), {"y": [kernel]}), x)
    flat = {"y": [kernel.reshape(3, 24, 1, 1), np.zeros(3, np.float32)]}
    (actual,) = answers(drafted(with_input(cut, 2, 4, 9, 8), flat), x)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)  # float32, 24 terms in another order
    assert "a window of 9 × 9 elements" in failure(
        with_input(cut.replace("kernel_h: 2 kernel_w: 3", "kernel_size: 9"), 2, 4, 9, 8)
    )


def test_a_crop_from_the_samples_on_leaves_them_as_they_are():
    small = 'layer { name: "p" type: "Pooling" bottom: "x" top: "p" pooling_param { kernel_size: 3 } }\n'
    crop = 'layer { name: "y" type: "Crop" bottom: "x" bottom: "p" top: "y" crop_param { axis: 0 %s } }'
    assert lines(drafted(with_input(small + crop % "offset: [0, 0, 1, 2]", 4, 3, 9, 8)))[-1] == (
        "{name: y, type: Crop, from: [x, p], axis: 1, offset: [0, 1, 2]}"
    )
    assert ", the batch" in failure(with_input(small + crop % "offset: 1", 4, 3, 9, 8))


def test_patches_of_an_absurd_image_are_refused():
    """Found by fuzzing: a list of the rows would have filled the memory."""
    cut = 'layer { name: "p" type: "Im2col" bottom: "x" top: "p" convolution_param { kernel_size: 2 stride: 2 } }'
    assert "a tensor is too large for any machine" in failure(with_input(cut, 2, 3, 99999999999, 8))
