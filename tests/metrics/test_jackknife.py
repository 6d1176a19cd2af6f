"""The error of any figure."""

import pytest
import torch

from enumerated import seeded
from sddm.metrics import jackknife, paired_difference


def test_the_error_of_a_mean_is_the_usual_one():
    values, groups = torch.randn(12, generator=seeded(0)).double(), torch.arange(12) // 3
    mean, error = jackknife(lambda some: float(values[some].mean()), groups)
    usual = paired_difference(values, torch.zeros_like(values), groups)
    assert (mean, error) == pytest.approx((usual.mean, usual.standard_error))


def test_the_error_of_a_ratio_is_its_spread_over_data():
    draws = torch.rand(400, 50, 2, generator=seeded(1)).double()
    found = [jackknife(lambda some, d=d: float(d[some, 0].sum() / d[some, 1].sum()), torch.arange(50)) for d in draws]
    ratios, errors = torch.tensor(found).double().unbind(1)
    # A standard deviation of 400 normal values has a relative error of 1 / sqrt(2 * 400) = 3.5%.
    assert float(errors.square().mean().sqrt() / ratios.std()) == pytest.approx(1, abs=4 * 0.035)


def test_one_group_has_no_error():
    with pytest.raises(ValueError, match="at least two groups"):
        jackknife(lambda some: 0.0, torch.zeros(3, dtype=torch.int64))
