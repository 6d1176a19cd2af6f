"""Features to codes: the nearest, a gradient that passes straight through, and codes that are put to use again."""

import math

import pytest
import torch

from enumerated import seeded
from sddm.tokenizers import Quantizer
from sddm.tokenizers.quantizer import Revival, perplexity, share_used

WIDTH, CODES = 6, 10


def made(seed=0, codes=CODES, width=WIDTH):
    torch.manual_seed(seed)
    return Quantizer(codes, width)


def features(num=3, rows=2, columns=4, seed=1):
    return torch.randn(num, WIDTH, rows, columns, generator=seeded(seed))


@pytest.mark.parametrize("pieces", [1 << 24, 25])
def test_the_nearest_code_is_that_of_brute_force(monkeypatch, pieces):
    monkeypatch.setattr("sddm.tokenizers.quantizer.AT_ONCE", pieces)
    quantizer, rows = made(), torch.randn(200, WIDTH, generator=seeded(0))
    distances = (rows.double()[:, None] - quantizer.codebook.detach().double()).square().sum(-1)
    chosen = distances.gather(1, quantizer.nearest(rows)[:, None]).squeeze(1)
    # |e|^2 - 2 f.e in float32: some tens of roundings of numbers of about this size
    largest = float(distances.max())
    assert ((chosen - distances.min(1).values) <= 50 * torch.finfo(torch.float32).eps * largest).all()
    assert torch.equal(quantizer.nearest(quantizer.codebook.detach()), torch.arange(CODES))


def test_of_equal_distances_the_first_code_is_taken():
    quantizer = made()
    with torch.no_grad():
        quantizer.codebook[7] = quantizer.codebook[3]
    assert quantizer.nearest(quantizer.codebook.detach()[[7, 3]]).tolist() == [3, 3]


def test_no_tensor_of_places_by_codes_by_width_is_made():
    """4,096 places, 4,096 codes of 256: the differences would be 16 GiB, the distances are 64 MiB."""
    quantizer = made(codes=4_096, width=256)
    assert quantizer.nearest(torch.randn(4_096, 256, generator=seeded(0))).shape == (4_096,)


def test_each_place_holds_its_code():
    quantizer, some = made(), features()
    result = quantizer(some)
    assert result.tokens.shape == (3, 2, 4)
    for n in range(3):
        for row in range(2):
            for column in range(4):
                (nearest,) = quantizer.nearest(some[n, :, row, column][None])
                assert result.tokens[n, row, column] == nearest
                found = quantizer.look_up(result.tokens)[n, :, row, column]
                assert torch.equal(found, quantizer.codebook[nearest])
    torch.testing.assert_close(result.features, quantizer.look_up(result.tokens))


def test_the_gradient_passes_straight_through():
    quantizer, some = made(), features().requires_grad_()
    slope = torch.randn(some.shape, generator=seeded(2))
    result = quantizer(some)
    through, to_codes = torch.autograd.grad(
        (result.features * slope).sum(), [some, quantizer.codebook], allow_unused=True
    )
    assert torch.equal(through, slope)
    assert to_codes is None


def test_each_of_the_two_losses_moves_one_side():
    quantizer, some = made(), features().requires_grad_()
    result = quantizer(some)
    code = quantizer.look_up(result.tokens).detach()
    expected = (some.detach() - code).square().mean()
    torch.testing.assert_close(result.codebook_loss, expected)
    torch.testing.assert_close(result.commitment_loss, expected)
    wanted = [some, quantizer.codebook]
    slopes = [
        torch.autograd.grad(loss, wanted, allow_unused=True, retain_graph=True)
        for loss in (result.codebook_loss, result.commitment_loss)
    ]
    assert slopes[0][0] is None
    assert slopes[1][1] is None
    torch.testing.assert_close(slopes[1][0], 2 * (some.detach() - code) / some.numel())
    by_hand = torch.zeros_like(quantizer.codebook)
    by_hand.index_add_(0, result.tokens.flatten(), (-slopes[1][0]).permute(0, 2, 3, 1).reshape(-1, WIDTH))
    torch.testing.assert_close(slopes[0][1], by_hand)


# ---- codes in use


def test_codes_that_were_unused_for_long_are_replaced_by_features_of_the_batch():
    quantizer, revival, some = made(), Revival(CODES, patience=3), features(num=8)
    revival.unused.zero_()
    used, unused = torch.zeros(8, 2, 4, dtype=torch.int64), torch.arange(1, CODES)
    before = quantizer.codebook.detach().clone()
    for _ in range(3):
        assert len(revival(quantizer, some, used, seeded(0))) == 0
    assert torch.equal(quantizer.codebook, before)
    assert torch.equal(revival(quantizer, some, used, seeded(0)), unused)
    assert torch.equal(quantizer.codebook[0], before[0])
    rows = some.permute(0, 2, 3, 1).reshape(-1, WIDTH)
    matches = (quantizer.codebook[unused][:, None] == rows).all(-1)
    assert matches.sum(1).tolist() == [1] * len(unused)
    assert matches.any(0).sum() == len(unused)  # each takes another place
    assert revival.unused.tolist() == [0] * CODES


def test_a_code_that_is_used_again_is_not_replaced():
    quantizer, revival, some = made(), Revival(CODES, patience=2), features()
    revival.unused.zero_()
    everything = torch.arange(CODES).repeat(3)[: 3 * 2 * 4].reshape(3, 2, 4)
    for step in range(20):
        tokens = everything if step % 2 == 0 else torch.zeros_like(everything)
        assert len(revival(quantizer, some, tokens, seeded(step))) == 0


def test_the_first_batch_gives_a_place_to_all_codes_that_it_does_not_use():
    quantizer, some = made(), features(num=8)
    with torch.no_grad():
        quantizer.codebook[1:] += 100  # far from all features
    revival = Revival(CODES, patience=5)
    tokens = quantizer.tokens(some)
    assert tokens.unique().tolist() == [0]
    assert len(revival(quantizer, some, tokens, seeded(0))) == CODES - 1
    assert len(quantizer.tokens(some).unique()) >= CODES - 1


def test_no_more_codes_are_replaced_than_there_are_places():
    quantizer, revival, some = made(), Revival(CODES, patience=1), features(num=1, rows=1, columns=2)
    before = quantizer.codebook.detach().clone()
    assert len(revival(quantizer, some, torch.zeros(1, 1, 2, dtype=torch.int64), seeded(0))) == 2
    assert int((quantizer.codebook != before).any(1).sum()) == 2


def test_the_same_generator_replaces_codes_by_the_same_features():
    books = []
    for seed in (0, 0, 1):
        quantizer, revival = made(), Revival(CODES, patience=1)
        revival(quantizer, features(num=8), torch.zeros(8, 2, 4, dtype=torch.int64), seeded(seed))
        books.append(quantizer.codebook.detach())
    assert torch.equal(books[0], books[1])
    assert not torch.equal(books[0], books[2])


def test_perplexity_counts_codes_that_are_equally_frequent():
    assert perplexity(torch.tensor([[0, 1], [2, 3]]), 8) == pytest.approx(4, rel=1e-12)
    assert perplexity(torch.tensor([5, 5, 5]), 8) == pytest.approx(1, rel=1e-12)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert perplexity(torch.tensor([0, 0, 0, 1]), 2) == pytest.approx(math.exp(entropy), rel=1e-12)
    assert share_used(torch.tensor([[0, 1], [1, 7]]), 8) == 3 / 8
