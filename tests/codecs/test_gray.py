import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sddm.codecs import GrayCode

LARGEST = 2**15 - 1


def all_patterns():
    """Every pattern of 16 bits in the first coordinate, and all of them again in reverse in the second."""
    numbers = torch.arange(2**16).unsqueeze(1)
    bits = (numbers >> torch.arange(15, -1, -1)) & 1
    return torch.cat([bits, bits.flip(0)], dim=1)


def points_of(*rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1.0, 3.0, 5461.538, 0.1, 1e-9, 1e9])
def test_encode_inverts_decode_for_every_bit_pattern(scale):
    bits = all_patterns()
    code = GrayCode(scale)
    assert torch.equal(code.encode(code.decode(bits)), bits)


@given(
    x=st.floats(-1, 1),
    y=st.floats(-1, 1),
    scale=st.floats(1e-6, 1e6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_point_decodes_to_within_half_a_quantum(x, y, scale, dtype):
    reach = LARGEST / scale
    points = torch.tensor([[x * reach, y * reach]], dtype=dtype)
    error = (GrayCode(scale).decode(GrayCode(scale).encode(points)) - points.double()).abs()
    rounding = 4 * torch.finfo(torch.float64).eps * 2**15
    assert (error * scale <= 0.5 + rounding).all()


def test_a_known_point_has_the_bits_worked_out_by_hand():
    # 5 = 101 has the Gray code 101 ^ 010 = 111; 2.75 * 4 = 11 = 1011 has 1011 ^ 0101 = 1110.
    bits = GrayCode(4.0).encode(points_of([1.25, -2.75]))
    first, second = [0] * 13 + [1, 1, 1], [1] + [0] * 11 + [1, 1, 1, 0]
    assert bits.tolist() == [first + second]
    assert bits.dtype == torch.int64


def test_neighbouring_cells_differ_in_one_bit():
    cells = torch.arange(-LARGEST, LARGEST, dtype=torch.float64) + 0.5
    bits = GrayCode(1.0).encode(torch.stack([cells, cells], dim=1))
    assert torch.equal((bits[1:] != bits[:-1]).view(-1, 2, 16).sum(-1), torch.ones(2 * LARGEST - 1, 2).long())


def test_negative_zero_is_the_cell_just_below_zero():
    code = GrayCode(10.0)
    negative_zero = [1] + [0] * 15
    bits = torch.tensor([negative_zero + negative_zero])
    assert code.decode(bits).tolist() == [[-0.05, -0.05]]
    assert torch.equal(code.encode(points_of([-0.0999, -1e-300])), bits)
    assert code.encode(points_of([0.0, -0.0])).sum() == 0


def test_what_does_not_fit_takes_the_largest_magnitude():
    code = GrayCode(2.0)
    inside = points_of([LARGEST / 2, -LARGEST / 2])
    for beyond in ([LARGEST / 2 + 0.5, -LARGEST / 2 - 0.5], [1e300, -1e300]):
        assert torch.equal(code.encode(points_of(beyond)), code.encode(inside))


def test_an_empty_set_of_points_has_an_empty_set_of_codes():
    assert GrayCode(1.0).encode(torch.empty(0, 2)).shape == (0, 32)


@pytest.mark.parametrize(
    ("points", "error", "sentence"),
    [
        ([[0.0, 1.0]], TypeError, "points must be a torch.Tensor, but it is a list"),
        (
            torch.zeros(3, 2, dtype=torch.int64),
            TypeError,
            "points must be a floating-point tensor, but it is of torch.int64",
        ),
        (torch.zeros(3, 3), ValueError, r"points must have shape \(batch, 2\).*\(3, 3\)"),
        (torch.zeros(2), ValueError, r"points must have shape \(batch, 2\).*\(2,\)"),
        (torch.tensor([[0.0, float("nan")]]), ValueError, "points holds NaN or infinite coordinates"),
        (torch.tensor([[float("inf"), 0.0]]), ValueError, "points holds NaN or infinite coordinates"),
    ],
)
def test_encode_says_what_is_wrong_with_its_points(without_annotation_checks, points, error, sentence):
    with pytest.raises(error, match=sentence):
        GrayCode(1.0).encode(points)


@pytest.mark.parametrize(
    ("tokens", "error", "sentence"),
    [
        (torch.zeros(3, 32), TypeError, "tokens must be of dtype torch.int64"),
        (torch.zeros(3, 31, dtype=torch.int64), ValueError, "tokens has 31 positions.*32"),
        (torch.zeros(32, dtype=torch.int64), ValueError, "tokens must have shape"),
        (torch.full((3, 32), 2), ValueError, "tokens must hold tokens from 0 to 1"),
        (torch.full((3, 32), -1), ValueError, "tokens must hold tokens from 0 to 1"),
    ],
)
def test_decode_says_what_is_wrong_with_its_tokens(without_annotation_checks, tokens, error, sentence):
    with pytest.raises(error, match=sentence):
        GrayCode(1.0).decode(tokens)


@pytest.mark.parametrize(
    ("scale", "error"), [(0.0, ValueError), (-1.0, ValueError), (float("nan"), ValueError), ("1", TypeError)]
)
def test_the_scale_must_be_a_positive_number(without_annotation_checks, scale, error):
    with pytest.raises(error, match="scale must be"):
        GrayCode(scale)
