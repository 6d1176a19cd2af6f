"""The Inception score of class probabilities whose score is known, and of pictures."""

import math

import numpy as np
import pytest
import torch

from scripted import tiny_inception
from sddm.metrics import inception_score, load_inception

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
EPS = torch.finfo(torch.float64).eps


def test_pictures_that_all_look_alike_have_a_score_of_one():
    for law in ([0.25] * 4, [1.0, 0.0, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1]):
        assert inception_score(torch.tensor([law]).repeat(40, 1)) == pytest.approx((1, 0), abs=1e-7)


@pytest.mark.parametrize("classes", [2, 10])
def test_sure_predictions_of_all_classes_alike_have_a_score_of_their_number(classes):
    score = inception_score(torch.eye(classes, dtype=torch.float64).repeat(20, 1))
    assert score == pytest.approx((classes, 0), abs=8 * classes * EPS)


def test_the_score_is_the_mean_over_consecutive_splits_and_the_deviation_is_theirs():
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4], [1.0, 0.0]], dtype=torch.float64)

    def by_hand(rows):
        overall = [sum(row[c] for row in rows) / len(rows) for c in range(2)]
        terms = [p * math.log(p / q) for row in rows for p, q in zip(row, overall, strict=True) if p > 0]
        return math.exp(sum(terms) / len(rows))

    first, second = by_hand(p[:2].tolist()), by_hand(p[2:].tolist())
    assert inception_score(p, splits=2) == pytest.approx(((first + second) / 2, abs(first - second) / 2), rel=1e-12)
    assert inception_score(p.numpy(), splits=1) == pytest.approx((by_hand(p.tolist()), 0), rel=1e-12)


def test_pictures_go_through_a_network_that_has_its_head(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    network = load_inception(tiny_inception(tmp_path, whole=True))
    expected = inception_score(network.probabilities(pictures), splits=3)
    assert expected.value > 1
    for _ in range(2):  # the second time from what was kept
        assert inception_score(pictures, network, splits=3, folder=tmp_path / "parts") == pytest.approx(
            expected, rel=1e-5
        )
    assert len(list((tmp_path / "parts").iterdir())) == 1


def test_a_network_without_a_head_is_refused_before_it_is_run(tmp_path):
    network = load_inception(tiny_inception(tmp_path))
    network._script = None
    with pytest.raises(ValueError, match=r"has no head, so that it gives features but no class probabilities"):
        inception_score(np.zeros((4, 8, 8, 3), np.uint8), network)


@pytest.mark.parametrize("wrong", [torch.ones(4, 3), torch.tensor([[1.5, -0.5]] * 4), torch.ones(4) / 4])
def test_what_are_no_probabilities_is_refused(wrong):
    with pytest.raises(ValueError, match=r"samples must be pictures, .* or a row of class probabilities"):
        inception_score(wrong, splits=2)


def test_there_are_no_more_splits_than_pictures():
    with pytest.raises(ValueError, match="splits must be at most 4, but it is 10"):
        inception_score(torch.eye(4))
