"""Predictions for published trainings are near their measurements, and the documentation has the predicted values."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.published_scaling import CASES, JITTER, RESNET_50, as_markdown, inception_v3, vgg16

DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"
TOLERANCE = 0.08
"""Tolerance of the efficiency: a quarter of the difference of the best and worst published figures. VGG-16 and
ResNet-152 miss by 7."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.net}-{case.workers}")
def test_predictions_are_near_published_figures(case):
    assert abs(case.predicted(JITTER) - case.published) < TOLERANCE
    assert case.predicted(0.0) > case.predicted(JITTER)


def test_nets_have_the_parameters_of_their_papers():
    for layers, millions in ((vgg16(), 138.3), (RESNET_50, 25.5), (inception_v3(), 23.8)):
        assert sum(size for size, _ in layers) / 1e6 == pytest.approx(millions, rel=2e-3)


def test_the_documentation_has_this_table():
    assert as_markdown() in DOCS.read_text(encoding="utf-8")
