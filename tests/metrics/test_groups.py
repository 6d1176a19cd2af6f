"""Samples that depend on one another: the error that takes their groups for the draws is the one that holds."""

import numpy as np
import pytest
import torch

from enumerated import all_states, draw_states, seeded
from sddm.baselines.gibbs import random_scan
from sddm.metrics import cell_distance, hamming_mmd

DIM, CHAINS, EACH, REPEATS = 5, 60, 16, 200
STATES = all_states(2, DIM)
WEIGHTS = torch.randn(DIM, DIM, generator=seeded(0))


def energy(x):
    """Two modes, between which Gibbs moves travel slowly."""
    spins = 2 * x.float() - 1
    return -0.7 * spins.sum(-1).square() / 2 + (spins @ WEIGHTS * spins).sum(-1) / 4


LAW = torch.softmax(-energy(STATES).double(), dim=0)
OTHER = torch.softmax(-energy(STATES).double() + 0.4 * STATES.sum(1), dim=0)
METRICS = {
    "mmd": lambda x, y, groups: hamming_mmd(x, y, bandwidth=0.5, dtype=torch.float32, groups=groups),
    "cells": lambda x, y, groups: cell_distance(numbers(x), numbers(y), groups),
}


def numbers(rows):
    return rows @ (2 ** torch.arange(DIM))


def truth(metric, law):
    """The distance of LAW from another law, over all states."""
    kernel = torch.exp(-0.5 * (STATES[:, None] != STATES).sum(-1).double()) if metric == "mmd" else torch.eye(2**DIM)
    distance = (LAW - law) @ kernel.double() @ (LAW - law)
    return float(distance if metric == "mmd" else distance / (law @ law))


def samples_of_chains(seed):
    """Chains that start from the exact law, so that each sample has it, and copies of them that move a little."""
    start = draw_states(LAW, CHAINS, 2, DIM, seed)
    chain = torch.arange(CHAINS * EACH) % CHAINS
    return random_scan(energy, start[chain], 6, seeded(seed)), chain


@pytest.fixture(scope="module")
def simulations():
    """Values and errors, over and over: of samples of chains against draws of the same law and of another."""
    found = {}
    for seed in range(REPEATS):
        x, chain = samples_of_chains(seed)
        for name, law in (("same", LAW), ("other", OTHER)):
            y = draw_states(law, 1_000, 2, DIM, REPEATS + seed)
            for metric, of in METRICS.items():
                for groups in (chain, None):
                    found.setdefault((metric, name, groups is not None), []).append(of(x, y, groups))
    return {case: np.array(values).T for case, values in found.items()}


@pytest.mark.parametrize("metric", METRICS)
def test_two_errors_cover_the_truth_by_chain_and_do_not_by_sample(simulations, metric):
    exact = truth(metric, OTHER)
    by_chain, by_sample = (
        float((np.abs(values - exact) < 2 * errors).mean())
        for values, errors in (simulations[metric, "other", grouped] for grouped in (True, False))
    )
    # Of 200 draws with probability 0.95, three standard deviations are 0.046.
    assert abs(by_chain - 0.95) < 0.046
    assert by_sample < 0.6


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("law", ["same", "other"])
def test_by_chain_the_value_has_no_bias_and_its_error_is_its_spread(simulations, metric, law):
    values, errors = simulations[metric, law, True]
    exact = truth(metric, LAW if law == "same" else OTHER)
    assert abs(values.mean() - exact) < 4 * values.std() / REPEATS**0.5
    # The spread of 200 values is known to 5 percent. If the laws are the same, the clipped part adds to the error: the
    # more, the fewer the directions in which chains differ, and here the weight of two modes is nearly the only one.
    assert 0.85 < errors.mean() / values.std() < (1.7 if law == "same" else 1.15)


@pytest.mark.parametrize("metric", METRICS)
def test_by_sample_the_value_has_a_bias(simulations, metric):
    """Of the pairs within a chain, which are nearer to each other than two draws of the law."""
    values, _ = simulations[metric, "same", False]
    assert values.mean() > 4 * values.std() / REPEATS**0.5


def test_groups_of_one_row_are_rows():
    x, y = (torch.randint(3, (num, 6), generator=seeded(num)) for num in (40, 30))
    alone = torch.randperm(40, generator=seeded(0))
    assert hamming_mmd(x, y, groups=alone, chunk=7) == pytest.approx(hamming_mmd(x, y), abs=1e-12)
    assert cell_distance(x[:, 0], y[:, 0], alone) == pytest.approx(cell_distance(x[:, 0], y[:, 0]), abs=1e-12)


@pytest.mark.parametrize("chunk", [1, 8, 1_000])
def test_the_kernel_of_groups_is_the_mean_over_their_rows_whatever_their_sizes(chunk):
    """A group that holds the same row several times is that row; the value follows a double loop."""
    x, y = (torch.randint(2, (num, 4), generator=seeded(num)) for num in (20, 15))
    times = torch.arange(20) % 3 + 1
    repeated = hamming_mmd(
        x.repeat_interleave(times, dim=0), y, chunk=chunk, groups=torch.arange(20).repeat_interleave(times)
    )
    assert repeated == pytest.approx(hamming_mmd(x, y), abs=1e-12)
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4])
    kernel = torch.exp(-0.1 * (x[:, None] != x).sum(-1).double())
    same = torch.stack([groups == g for g in range(5)]).double()
    means = (same / same.sum(1, keepdim=True)) @ kernel @ (same / same.sum(1, keepdim=True)).T
    within = (means.sum() - means.trace()) / 20
    cross = (same / same.sum(1, keepdim=True)) @ torch.exp(-0.1 * (x[:, None] != y).sum(-1).double())
    within_y = torch.exp(-0.1 * (y[:, None] != y).sum(-1).double())
    within_y = (within_y.sum() - 15) / (15 * 14)
    found = hamming_mmd(x, y, chunk=chunk, groups=groups).value
    assert found == pytest.approx(float(within + within_y - 2 * cross.mean()), abs=1e-12)


@pytest.mark.usefixtures("without_annotation_checks")
def test_bad_groups_are_refused_in_a_sentence():
    rows = torch.zeros(5, 4, dtype=torch.int64)
    for bad, said in (
        (torch.arange(4), "one int64 number a row, 5 in all"),
        (torch.zeros(5, dtype=torch.int64), "two groups"),
    ):
        with pytest.raises(ValueError, match=f"groups must .*{said}"):
            hamming_mmd(rows, rows, groups=bad)
