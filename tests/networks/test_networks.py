"""The plain networks, each against its definition written out: embeddings, attention, blocks, energies, readouts."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from made import made
from sddm.networks import Denoiser, HollowTransformer, MLPEnergy, Places, Sizes, TransformerEnergy, chunks, energy
from sddm.networks import elu_layers as elu_module
from sddm.networks.chunks import in_chunks
from sddm.networks.elu_layers import elu_layers
from sddm.networks.embeddings import PlaceEmbedding, Rotary, TokenEmbedding, sinusoidal
from sddm.networks.readouts import FiLMReadout, MLPReadout, readout
from sddm.networks.transformer import Attention, BidirectionalTransformer, Block
from sddm.query import Query

ROUNDING = 1e-12
"""Networks below have float64 weights and activations of order 1 to 10, and sums of at most some hundred terms."""

SMALL = {"width": 8, "layers": 2, "heads": 2, "mlp": 12}
TINY = Sizes(**SMALL)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def with_random_weights(module, scale=0.4):
    """In float64, with all weights drawn, so that none is zero or one by construction."""
    generator = seeded(0)
    module.double()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            centre = 1.0 if weight.ndim == 1 and name.endswith("weight") else 0.0  # the gain of a norm
            weight.copy_(centre + scale * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return module


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def tokens(batch, dim, num_tokens, seed=0):
    return torch.randint(num_tokens, (batch, dim), generator=seeded(seed))


def spread_times(batch):
    return torch.linspace(0, 1, batch, dtype=torch.float64)


def some_positions(batch, dim, num, seed=0):
    """Different ones in each row, in no particular order."""
    return torch.rand(batch, dim, generator=seeded(seed)).argsort(1)[:, :num]


def at(values, positions):
    return torch.stack([row[where] for row, where in zip(values, positions, strict=True)])


def assert_close(actual, expected, tolerance=ROUNDING):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def gradients(value, module):
    """All of them; a weight that plays no part has none."""
    return torch.autograd.grad(value, list(module.parameters()), allow_unused=True)


# ---- time ----------------------------------------------------------------------------------------------------------


def test_times_a_thousandth_apart_differ_by_at_least_a_radian_of_the_fastest_sinusoid():
    embedded = sinusoidal(torch.linspace(0, 1, 1001, dtype=torch.float64), 32)
    distance = torch.cdist(embedded, embedded) + 10 * torch.eye(1001)
    # sin and cos of phases a radian apart are a chord 2 sin(1/2) apart; the other frequencies only add to it.
    assert float(distance.min()) >= 2 * math.sin(0.5)


def test_times_a_millionth_apart_differ_by_far_more_than_rounding():
    t = torch.tensor([0.0, 1e-6, 0.5, 0.5 + 1e-6, 1 - 1e-6, 1.0], dtype=torch.float64)
    embedded = sinusoidal(t, 32).double()
    chord = (embedded[1::2] - embedded[::2]).norm(dim=1)
    assert (chord >= 2 * math.sin(0.5e-3) - 32 * 2**-24).all()


def test_the_phase_of_the_time_is_computed_in_float64():
    t = torch.rand(2000, generator=seeded(0), dtype=torch.float64)
    half = 8
    frequency = torch.tensor([1e4 ** (-i / (half - 1)) for i in range(half)], dtype=torch.float64)
    phase = 1000 * t[:, None] * frequency
    expected = torch.cat([phase.sin(), phase.cos()], dim=1)
    half_a_unit_in_the_last_place = 2**-25
    slack = 1e-12  # the phase, up to 1000, is itself rounded in float64
    assert float((sinusoidal(t, 2 * half).double() - expected).abs().max()) <= half_a_unit_in_the_last_place + slack
    single = (1000 * t[:, None].float() * frequency.float()).sin()
    assert float((single.double() - expected[:, :half]).abs().max()) > 100 * half_a_unit_in_the_last_place


@pytest.mark.parametrize("width", [1, 3, 17])
def test_an_odd_width_is_the_even_one_below_and_a_zero(width):
    t = spread_times(5)
    embedded = sinusoidal(t, width)
    assert embedded.shape == (5, width)
    assert embedded.dtype == torch.float32
    assert torch.equal(embedded[:, :-1], sinusoidal(t, width - 1))
    assert torch.equal(embedded[:, -1], torch.zeros(5))


# ---- tokens and places ---------------------------------------------------------------------------------------------


def test_a_given_token_is_its_vector_plus_one_for_being_given():
    embedding = with_random_weights(TokenEmbedding(5, 8))
    x, given = tokens(3, 4, 5), torch.rand(3, 4, generator=seeded(1)) < 0.5
    assert_close(embedding(x, None), embedding.tokens.weight[x])
    difference = embedding(x, given) - embedding(x, None)
    assert_close(difference[given], embedding.given.expand_as(difference[given]))
    assert torch.equal(difference[~given], torch.zeros_like(difference[~given]))


def test_a_length_gives_one_vector_a_place():
    places = PlaceEmbedding(Places(7).tables, 8)
    assert not places.rotary
    assert [tuple(p.shape) for p in places.parameters()] == [(7, 8)]
    assert places() is places.tables[0]


@pytest.mark.parametrize("length", [None, 6])
def test_a_place_of_a_grid_is_its_row_plus_its_column(length):
    assert Places(length, (2, 3)) == Places(6, (2, 3))
    places = PlaceEmbedding(Places(length, (2, 3)).tables, 8)
    assert not places.rotary
    rows, columns = places.parameters()
    assert (tuple(rows.shape), tuple(columns.shape)) == ((2, 8), (3, 8))
    for r in range(2):
        for c in range(3):
            assert torch.equal(places()[3 * r + c], rows[r] + columns[c])


def test_without_length_or_grid_places_have_no_vectors_and_attention_rotates():
    places = PlaceEmbedding(Places().tables, 8)
    assert places.rotary
    assert list(places.parameters()) == []


def rotated_products(index, q, k):
    rotary = Rotary(index, q.shape[-1], torch.float64)
    return rotary(q) @ rotary(k).mT


def test_products_of_rotated_vectors_depend_only_on_the_distance_of_their_places():
    q, k = normal(1, 1, 1, 8, seed=1).expand(-1, -1, 12, -1), normal(1, 1, 1, 8, seed=2).expand(-1, -1, 12, -1)
    products = rotated_products(torch.arange(12), q, k)[0, 0]
    # Angles of up to 31 radians are made in float32 and so known to 31 * 2^-24.
    rounding = 2 * 31 * 2**-24 * float(q[..., 0, :].norm() * k[..., 0, :].norm())
    for distance in range(-11, 12):
        same = products.diagonal(distance)
        assert float(same.max() - same.min()) <= 2 * rounding
    shifted = rotated_products(torch.arange(20, 32), q, k)[0, 0]
    assert float((shifted - products).abs().max()) <= 2 * rounding
    assert float(products[0].max() - products[0].min()) > 0.1


def test_a_rotation_keeps_lengths_and_leaves_place_zero_alone():
    x = normal(2, 3, 5, 8)
    turned = Rotary(torch.arange(5), 8, torch.float64)(x)
    assert_close(turned.norm(dim=-1), x.norm(dim=-1), tolerance=2**-22)  # cos and sin are those of float32
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    assert (turned[:, :, 1:] - x[:, :, 1:]).abs().amax(-1).min() > 1e-3


def test_the_rotation_for_both_streams_turns_each_as_one_stream_and_the_time_not_at_all():
    rotary = Rotary(torch.arange(5), 8, torch.float64)
    left, right, time = normal(2, 3, 5, 8, seed=1), normal(2, 3, 5, 8, seed=2), normal(2, 3, 1, 8, seed=3)
    turned = rotary.for_both_streams()(torch.cat([left, right, time], dim=2))
    assert torch.equal(turned, torch.cat([rotary(left), rotary(right), time], dim=2))


# ---- attention and blocks ------------------------------------------------------------------------------------------


def attention_by_hand(attention, x, mask=None):
    """softmax(q k' / sqrt(w)) v a head at a time."""
    width = x.shape[-1] // attention.heads
    q, k, v = attention.query_key_value(x).chunk(3, dim=-1)
    heads = []
    for h in range(attention.heads):
        own = slice(h * width, (h + 1) * width)
        scores = q[..., own] @ k[..., own].mT / math.sqrt(width)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, 0], -math.inf)
        heads.append(scores.softmax(-1) @ v[..., own])
    return attention.out(torch.cat(heads, dim=-1))


def a_mask(batch, places):
    """Each row leaves out other places, never the first."""
    mask = torch.rand(batch, 1, 1, places, generator=seeded(5)) < 0.6
    mask[..., 0] = True
    return mask


def test_attention_is_the_textbook_formula():
    attention, x, mask = with_random_weights(Attention(TINY)), normal(3, 5, 8), a_mask(3, 5)
    assert_close(attention(x), attention_by_hand(attention, x))
    assert_close(attention(x, mask), attention_by_hand(attention, x, mask.expand(-1, -1, 5, -1)))
    causal = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    assert_close(attention(x, causal=True), attention_by_hand(attention, x, causal))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
def test_attention_from_the_same_rows_as_queries_is_attention(masked, rotated):
    attention, x = with_random_weights(Attention(TINY)), normal(3, 5, 8)
    mask = a_mask(3, 5) if masked else None
    rotary = Rotary(torch.arange(5), 4, torch.float64) if rotated else None
    expected = attention(x, mask, rotary=rotary)
    assert_close(attention.from_queries(x, x, mask, (rotary, rotary) if rotated else None), expected)
    fewer = Rotary(torch.tensor([1, 3]), 4, torch.float64)
    some = attention.from_queries(x[:, [1, 3]], x, mask, (fewer, rotary) if rotated else None)
    assert_close(some, expected[:, [1, 3]])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
def test_a_block_at_some_rows_is_the_whole_block_there(masked, rotated):
    block, x, rows = with_random_weights(Block(TINY)), normal(3, 6, 8), some_positions(3, 6, 2)
    mask = a_mask(3, 6) if masked else None
    rotary = Rotary(torch.arange(6), 4, torch.float64) if rotated else None
    whole, some = at(block(x, mask, False, rotary), rows), block(x, mask, False, rotary, rows=rows)
    assert_close(some, whole)
    for one, other in zip(gradients(some.square().sum(), block), gradients(whole.square().sum(), block), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)  # sums of squares of up to 1e3


def test_a_causal_block_sees_nothing_after_its_place():
    block, x = with_random_weights(Block(TINY)), normal(2, 5, 8)
    changed = x.clone()
    changed[:, 3:] = normal(2, 2, 8, seed=9)
    before, after = block(x, None, True), block(changed, None, True)
    assert torch.equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).any(-1).all()


# ---- the bidirectional transformer ---------------------------------------------------------------------------------

PLACES = {"learned": {"length": 6}, "rotary": {"length": None}, "grid": {"length": None, "grid": (2, 3)}}


@pytest.fixture(params=PLACES)
def transformer(request):
    return with_random_weights(made(BidirectionalTransformer, 5, **PLACES[request.param], **SMALL))


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("places", PLACES)
def test_features_at_some_positions_are_all_features_indexed(layers, marked, places):
    transformer = with_random_weights(
        made(BidirectionalTransformer, 5, **PLACES[places], **{**SMALL, "layers": layers})
    )
    x, t, positions = tokens(4, 6, 5), spread_times(4), some_positions(4, 6, 3)
    given = padding = None
    if marked:
        given = torch.rand(4, 6, generator=seeded(1)) < 0.5
        padding = torch.arange(6) >= torch.tensor([[6], [4], [3], [5]])
    everything = transformer(Query(x, t, None, given, padding))
    assert everything.shape == (4, 6, 8)
    assert_close(transformer(Query(x, t, positions, given, padding)), at(everything, positions))


def test_every_feature_sees_every_token_and_the_time(transformer):
    x, t = tokens(1, 6, 5), torch.tensor([0.3], dtype=torch.float64)
    here = transformer(Query(x, t))
    for d in range(6):
        changed = x.clone()
        changed[:, d] = (x[:, d] + 1) % 5
        assert (transformer(Query(changed, t)) != here).any(-1).all()
    assert (transformer(Query(x, t + 1e-4)) != here).any(-1).all()


def test_places_are_told_apart(transformer):
    same = transformer(Query(torch.zeros(1, 6, dtype=torch.int64), torch.ones(1, dtype=torch.float64)))[0].detach()
    assert float((torch.cdist(same, same) + torch.eye(6)).min()) > 1e-3


def test_a_rotary_transformer_takes_rows_of_any_length():
    transformer = with_random_weights(made(BidirectionalTransformer, 5, **SMALL))
    for dim in (1, 3, 50):
        assert transformer(Query(tokens(2, dim, 5), spread_times(2))).shape == (2, dim, 8)


# ---- padding -------------------------------------------------------------------------------------------------------

FILM, PLAIN = {"film_blocks": 2}, {"film_blocks": 0}
PADDED = {
    "body": lambda **places: made(BidirectionalTransformer, 5, **places, **SMALL),
    "denoiser": lambda **places: made(Denoiser, 5, 4, **places, **SMALL, **FILM),
    "energy": lambda **places: made(TransformerEnergy, 5, **places, **SMALL),
    "hollow-concatenated": lambda **places: made(HollowTransformer, 5, 4, **places, **SMALL, **FILM),
    "hollow-joint": lambda **places: made(HollowTransformer, 5, 4, **places, **SMALL, joint_attention=True),
}


@pytest.fixture(params=PADDED)
def padded_network(request):
    return PADDED[request.param]


def run(network, x, t, padding):
    """Its results a position where it has them, and a row where not."""
    return network(Query(x, t, padding=padding))


LENGTHS = torch.tensor([6, 1, 2, 4, 5])
PADDING = torch.arange(6) >= LENGTHS[:, None]


@pytest.mark.parametrize("places", PLACES)
def test_the_tokens_in_padded_places_change_nothing_elsewhere(padded_network, places):
    network = with_random_weights(padded_network(**PLACES[places]))
    x, t = tokens(5, 6, 5), spread_times(5)
    other = torch.where(PADDING, (x + 1 + tokens(5, 6, 4, seed=1)) % 5, x)
    assert (other != x)[PADDING].all()
    before, after = run(network, x, t, PADDING), run(network, other, t, PADDING)
    if before.ndim == 3:
        before, after = before[~PADDING], after[~PADDING]
    assert torch.equal(before, after)


def test_a_padded_row_of_a_rotary_network_is_the_shorter_row(padded_network):
    network = with_random_weights(padded_network())
    x, t = tokens(5, 6, 5), spread_times(5)
    together = run(network, x, t, PADDING)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = run(network, x[row : row + 1, :length], t[row : row + 1], None)[0]
        here = together[row, :length] if together.ndim == 3 else together[row]
        assert_close(here, alone, tolerance=1e-5)  # angles of up to 6, counted from another end, are made in float32


def test_a_padding_that_marks_nothing_is_no_padding(padded_network):
    network = with_random_weights(padded_network())
    x, t = tokens(5, 6, 5), spread_times(5)
    assert_close(run(network, x, t, torch.zeros_like(PADDING)), run(network, x, t, None))


def test_an_mlp_energy_refuses_padding_with_a_sentence():
    network = MLPEnergy(3, 5, width=8)
    x = tokens(2, 3, 5)
    with pytest.raises(ValueError, match=r"an MLP energy knows rows of one length only\. Use a transformer"):
        network.replaced(Query(x, spread_times(2), padding=torch.zeros_like(x).bool()))


# ---- chunks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoints(monkeypatch):
    """Counts the pieces that are run again in the backward pass."""
    calls, original = [], chunks.checkpoint

    def counted(function, *arguments, **options):
        calls.append(len(arguments[0]))
        return original(function, *arguments, **options)

    monkeypatch.setattr(chunks, "checkpoint", counted)
    return calls


def perceptron():
    layers = [nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2)]
    return with_random_weights(nn.Sequential(*layers))


def saved_elements(function):
    """How many numbers the forward pass keeps for the backward pass."""
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = function()
    del result
    return sum(kept.values())


@pytest.mark.parametrize(("rows", "pieces"), [(1, [1] * 10), (3, [3, 3, 3, 1]), (5, [5, 5]), (9, [9, 1])])
def test_chunks_give_the_result_and_gradient_of_the_whole(checkpoints, rows, pieces):
    network, x, scale = perceptron(), normal(10, 4), normal(10, 1, seed=1)

    def function(x, nothing, scale):
        assert nothing is None
        return network(x) * scale

    whole = function(x, None, scale)
    chunked = in_chunks(function, (x, None, scale), rows)
    assert checkpoints == pieces
    assert_close(chunked, whole)
    expected = gradients(whole.square().sum(), network)
    for one, other in zip(gradients(chunked.square().sum(), network), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=ROUNDING, atol=1e-10)  # sums of squares of up to 1e2


def test_chunks_keep_only_their_arguments_for_the_backward_pass():
    """The intermediate results of one piece are made again when its turn comes."""
    network, x = perceptron(), normal(1000, 4)
    whole = saved_elements(lambda: network(x))
    chunked = saved_elements(lambda: in_chunks(network, (x,), 10))
    assert whole >= 2 * 1000 * 32  # both hidden layers
    weights = sum(p.numel() for p in network.parameters())
    assert chunked <= x.numel() + 2 * x.shape[0] + weights


@pytest.mark.parametrize("rows", [10, 11, 1000])
def test_what_fits_into_one_chunk_is_run_as_it_is(checkpoints, rows):
    network, x = perceptron(), normal(10, 4)
    assert torch.equal(in_chunks(network, (None, x)[1:], rows), network(x))
    assert checkpoints == []


def test_without_a_gradient_nothing_is_run_again(checkpoints):
    network, x = perceptron(), normal(10, 4)
    with torch.no_grad():
        assert_close(in_chunks(network, (x,), 3), network(x))
    assert checkpoints == []


def test_dropout_is_the_same_when_a_chunk_is_run_again():
    """Otherwise the gradient would belong to another network than the value."""
    x = torch.ones(8, 5, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    dropped = in_chunks(lambda x: F.dropout(x, 0.5) * x.detach(), (x,), 2)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped.detach())
    assert 0 < int((gradient == 0).sum()) < 40


# ---- energies ------------------------------------------------------------------------------------------------------


def replaced_by_brute_force(network, x, t, positions, given=None, padding=None):
    """One copy of x for each position and each value, each through the network by itself."""
    options = {} if padding is None else {"padding": padding}
    energies = x.new_zeros(*positions.shape, network.num_tokens, dtype=torch.float64)
    for k in range(positions.shape[1]):
        for c in range(network.num_tokens):
            copy = x.scatter(1, positions[:, k : k + 1], c)
            energies[:, k, c] = network(Query(copy, t, given=given, **options))
    return energies


MLP_ENERGIES = {
    f"C{tokens}-{layers}layers-{'learned' if learned else 'plain'}-time": (tokens, layers, learned)
    for tokens in (2, 3, 5)
    for layers in (1, 3)
    for learned in (False, True)
}


def mlp_energy(num_tokens, layers, learned_time, **options):
    network = MLPEnergy(6, num_tokens, width=10, layers=layers, learned_time=learned_time, **options)
    return with_random_weights(network)


@pytest.mark.parametrize("name", MLP_ENERGIES)
@pytest.mark.parametrize("num", [1, 4, 6])
def test_the_mlp_energies_of_neighbours_are_those_of_copies(name, num):
    network = mlp_energy(*MLP_ENERGIES[name])
    x, t, positions = tokens(5, 6, network.num_tokens), spread_times(5), some_positions(5, 6, num)
    energies = network.replaced(Query(x, t, positions))
    assert energies.shape == (5, num, network.num_tokens)
    expected = replaced_by_brute_force(network, x, t, positions)
    assert_close(energies, expected)
    weights = normal(*energies.shape, seed=3)
    ours, theirs = (gradients((value * weights).sum(), network) for value in (energies, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)  # sums of some hundred terms of up to 10


def columns_of(network):
    """W[d, c], the weight column of value c in position d."""
    weight = network.first.weight.T
    if network.num_tokens == 2:
        return torch.stack([torch.zeros_like(weight), weight], dim=1)
    return weight.reshape(6, network.num_tokens, 10)


@pytest.mark.parametrize("name", MLP_ENERGIES)
def test_the_mlp_energy_is_its_formula(name):
    """A sum of weight columns, then elu(h + time) and a linear map for each layer."""
    network = mlp_energy(*MLP_ENERGIES[name])
    x, t = tokens(5, 6, network.num_tokens), spread_times(5)
    h = network.first.bias + sum(columns_of(network)[d, x[:, d]] for d in range(6))
    time = sinusoidal(t, 10).double()
    times = [time] * (1 + len(network.hidden))
    if network.time is not None:
        times = network.time(time).chunk(1 + len(network.hidden), dim=1)
    h = F.elu(h + times[0])
    for layer, extra in zip(network.hidden, times[1:], strict=True):
        h = F.elu(layer(h) + extra)
    assert_close(network(Query(x, t)), network.last(h).squeeze(1))


def layers_of_elu(layers, others, batch=3, width=4):
    """Arguments for elu_layers, all with gradients: base, change, times, last, weights, biases."""
    sizes = [(batch, width), (batch, others, width), (batch, layers, width), (width,)]
    sizes += [(width, width)] * (layers - 1) + [(width,)] * (layers - 1)
    return [normal(*size, seed=i).requires_grad_() for i, size in enumerate(sizes)]


def in_one_piece(base, change, times, last, *rest):
    return elu_layers(base, change, times, last, list(rest[: len(rest) // 2]), list(rest[len(rest) // 2 :]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_quick_elu_is_torchs_for_all_numbers(dtype):
    u = torch.cat([torch.linspace(-2000, 2000, 4001), torch.linspace(-1, 1, 2001), torch.tensor([0.0, 1e-30, -1e-30])])
    u = u.to(dtype)
    torch.testing.assert_close(
        elu_module._elu_(u.clone(), torch.empty_like(u)),
        torch.nn.functional.elu(u),
        rtol=0,
        atol=torch.finfo(dtype).eps,
    )
    nan = torch.tensor([float("nan")], dtype=dtype)
    assert elu_module._elu_(nan, torch.empty_like(nan)).isnan()


def by_definition(base, change, times, last, *rest):
    h = F.elu(torch.cat([base[:, None], base[:, None] + change], dim=1) + times[:, None, 0])
    for i in range(len(rest) // 2):
        h = F.elu(h @ rest[i].T + rest[len(rest) // 2 + i] + times[:, None, i + 1])
    return (h * last).sum(-1)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("others", [0, 1, 5])
def test_the_written_out_layers_have_the_value_and_gradient_of_their_formula(layers, others):
    """In the two ways that there are: written out, and in plain operations where autocast has to see them (it leaves
    float64 as it is)."""
    arguments = layers_of_elu(layers, others)
    expected = by_definition(*arguments)
    factor = normal(*expected.shape, seed=99)
    slopes = torch.autograd.grad((expected * factor).sum(), arguments)
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            value = in_one_piece(*arguments)
        assert_close(value, expected)
        for one, other in zip(torch.autograd.grad((value * factor).sum(), arguments), slopes, strict=True):
            assert_close(one, other, tolerance=1e-10)


@pytest.mark.parametrize("layers", [1, 3])
def test_the_written_out_gradient_is_that_of_finite_differences(layers):
    assert torch.autograd.gradcheck(in_one_piece, layers_of_elu(layers, 2))


def test_the_written_out_layers_change_none_of_their_arguments_and_can_go_back_twice():
    arguments = layers_of_elu(3, 4)
    before = [a.detach().clone() for a in arguments]
    value = in_one_piece(*arguments)
    first = torch.autograd.grad(value.sum(), arguments, retain_graph=True)
    again = torch.autograd.grad(value.sum(), arguments)
    assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_binary_tokens_enter_an_mlp_energy_as_numbers():
    """One weight column a position: W[d, 0] = 0 and W[d, 1] is learned."""
    network = mlp_energy(2, 3, False)
    assert tuple(network.first.weight.shape) == (10, 6)
    zero, one = (columns_of(network)[:, value] for value in (0, 1))
    first = [network._first(torch.full((1, 6), value)) for value in (0, 1)]
    assert_close(first[0], (network.first.bias + zero.sum(0))[None])
    assert_close(first[1], (network.first.bias + one.sum(0))[None])
    assert tuple(mlp_energy(3, 3, False).first.weight.shape) == (10, 18)


@pytest.mark.parametrize("learned", [False, True])
def test_the_time_moves_an_mlp_energy(learned):
    network, x = mlp_energy(5, 3, learned), tokens(4, 6, 5)
    t = torch.full((4,), 0.5, dtype=torch.float64)
    assert (network(Query(x, t)) - network(Query(x, t + 1e-3))).abs().min() > 1e-6


TRANSFORMER_ENERGIES = {
    "C2-learned": (2, {"length": 6}),
    "C5-learned": (5, {"length": 6}),
    "C5-rotary": (5, {}),
    "C3-grid": (3, {"grid": (2, 3)}),
}


def transformer_energy(name, **options):
    num_tokens, places = TRANSFORMER_ENERGIES[name]
    return with_random_weights(made(TransformerEnergy, num_tokens, **places, **SMALL, **options))


@pytest.mark.parametrize("name", TRANSFORMER_ENERGIES)
@pytest.mark.parametrize("marked", [False, True])
def test_the_transformer_energies_of_neighbours_are_those_of_copies(name, marked):
    network = transformer_energy(name)
    x, t, positions = tokens(4, 6, network.num_tokens), spread_times(4), some_positions(4, 6, 3)
    given = padding = None
    if marked:
        given = torch.rand(4, 6, generator=seeded(1)) < 0.5
        padding = torch.arange(6) >= torch.tensor([[6], [4], [3], [5]])
    energies = network.replaced(Query(x, t, positions, given, padding))
    assert energies.shape == (4, 3, network.num_tokens)
    assert_close(energies, replaced_by_brute_force(network, x, t, positions, given, padding))


@pytest.mark.parametrize("num_tokens", [2, 5])
@pytest.mark.parametrize("num", [1, 4, 6])
@pytest.mark.parametrize("chunk", [1, 1 << 16])
def test_k_positions_cost_k_times_one_less_than_the_states_and_one_evaluations(monkeypatch, num_tokens, num, chunk):
    """Counted in the layers above the first, where all work of an MLP is, and in the last layer of a transformer."""
    x, positions = tokens(5, 6, num_tokens), some_positions(5, 6, num)
    expected, counts = 5 * (num * (num_tokens - 1) + 1), []
    original = energy.elu_layers

    def counted(base, change, *rest):
        counts.append(len(base) * (1 + change.shape[1]))
        return original(base, change, *rest)

    monkeypatch.setattr(energy, "elu_layers", counted)
    MLPEnergy(6, num_tokens, width=10, chunk_rows=chunk).replaced(Query(x, spread_times(5), positions))
    assert sum(counts) == expected
    transformer = made(TransformerEnergy, num_tokens, length=6, **SMALL, chunk_tokens=chunk)
    counts.clear()
    transformer.energy.register_forward_pre_hook(lambda module, inputs: counts.append(len(inputs[0])))
    transformer.replaced(Query(x, spread_times(5), positions))
    assert sum(counts) == expected


@pytest.mark.parametrize("chunk", [1, 20, 61, 1 << 16])
def test_the_chunk_size_of_an_mlp_energy_does_not_matter(chunk):
    x, t, positions = tokens(7, 6, 5), spread_times(7), some_positions(7, 6, 4)
    whole, chunked = (mlp_energy(5, 3, True, chunk_rows=rows) for rows in (1 << 16, chunk))
    assert_same_energies(whole, chunked, x, t, positions)


@pytest.mark.parametrize("chunk", [1, 20, 61, 1 << 16])
def test_the_chunk_size_of_a_transformer_energy_does_not_matter(chunk):
    x, t, positions = tokens(3, 6, 5), spread_times(3), some_positions(3, 6, 2)
    whole, chunked = (transformer_energy("C5-learned", chunk_tokens=size) for size in (1 << 17, chunk))
    assert_same_energies(whole, chunked, x, t, positions)


def assert_same_energies(whole, chunked, x, t, positions):
    given = torch.zeros_like(x, dtype=torch.bool)
    expected, energies = whole.replaced(Query(x, t, positions, given)), chunked.replaced(Query(x, t, positions, given))
    assert_close(energies, expected)
    pairs = zip(gradients(energies.sum(), chunked), gradients(expected.sum(), whole), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)  # sums of some hundred terms of up to 10


# ---- readouts ------------------------------------------------------------------------------------------------------


def test_film_blocks_are_scaled_and_shifted_by_the_time():
    """x <- (1 + a(t)) * norm(x + MLP(x)) + b(t), then logits; the time itself goes through an MLP."""
    film = with_random_weights(readout(6, 4, Sizes(width=8, heads=2, mlp=10), 2))
    assert isinstance(film, FiLMReadout)
    features, t = normal(3, 5, 6), spread_times(3)
    time = film.time(sinusoidal(t, 8).double())
    expected = torch.empty(3, 5, 4, dtype=torch.float64)
    for b in range(3):
        for d in range(5):
            x = features[b, d]
            for mlp, norm, modulation in zip(film.residual, film.norms, film.films, strict=True):
                y = x + mlp[2](F.gelu(mlp[0](x)))
                y = (y - y.mean()) / torch.sqrt(y.var(correction=0) + norm.eps) * norm.weight + norm.bias
                a, c = modulation(time[b])[:6], modulation(time[b])[6:]
                x = (1 + a) * y + c
            expected[b, d] = film.logits(x)
    assert_close(film(features, t), expected)


def test_a_readout_without_film_blocks_is_an_mlp_that_the_time_does_not_enter():
    plain = with_random_weights(readout(6, 4, Sizes(width=8, heads=2, mlp=10), 0))
    assert isinstance(plain, MLPReadout)
    x, t = normal(3, 5, 6), spread_times(3)
    first, _, second = plain.mlp
    assert_close(plain(x, t), second(F.gelu(first(x))))
    assert torch.equal(plain(x, t), plain(x, 1 - t))


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_time_moves_every_logit_of_a_film_readout(blocks):
    film, x = with_random_weights(readout(6, 4, Sizes(width=8, heads=2, mlp=10), blocks)), normal(3, 5, 6)
    assert len(film.residual) == blocks
    t = torch.full((3,), 0.5, dtype=torch.float64)
    assert (film(x, t) != film(x, t + 1e-3)).all()


def test_a_denoiser_is_its_body_and_its_readout():
    denoiser = with_random_weights(made(Denoiser, 5, 4, length=6, **SMALL))
    x, t, positions = tokens(4, 6, 5), spread_times(4), some_positions(4, 6, 3)
    everything = denoiser.readout(denoiser.body(Query(x, t)), t)
    assert everything.shape == (4, 6, 4)
    assert_close(denoiser(Query(x, t)), everything)
    assert_close(denoiser(Query(x, t, positions)), at(everything, positions))


# ---- what they refuse ----------------------------------------------------------------------------------------------

TRANSFORMERS = {
    "denoiser": lambda **sizes: made(Denoiser, 5, 4, **({"length": 6} | SMALL | sizes)),
    "hollow": lambda **sizes: made(HollowTransformer, 5, 4, **({"length": 6} | SMALL | sizes)),
    "energy": lambda **sizes: made(TransformerEnergy, 5, **({"length": 6} | SMALL | sizes)),
}


@pytest.mark.parametrize("network", TRANSFORMERS)
@pytest.mark.parametrize(
    ("sizes", "error", "sentence"),
    [
        ({"width": 10, "heads": 2}, ValueError, "width must be a multiple of twice heads, but 10 is not of 2"),
        ({"width": 0}, ValueError, "width must be at least 1, but it is 0"),
        ({"width": 8.0}, TypeError, "width must be a whole number, but it is 8.0 of type float"),
        ({"layers": 0}, ValueError, "layers must be at least 1, but it is 0"),
        ({"heads": 0}, ValueError, "heads must be at least 1, but it is 0"),
        ({"heads": True}, TypeError, "heads must be a whole number, but it is True of type bool"),
        ({"mlp": -3}, ValueError, "mlp must be at least 1, but it is -3"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\), but it is 1.0"),
        ({"dropout": -0.1}, ValueError, r"dropout must lie in \[0, 1\), but it is -0.1"),
        ({"length": 0}, ValueError, "length must be at least 1, but it is 0"),
        ({"length": 7, "grid": (2, 3)}, ValueError, "length is 7, but the grid 2 x 3 has 6"),
        ({"length": None, "grid": (2, 0)}, ValueError, "grid must be at least 1, but it is 0"),
        ({"length": None, "grid": (2, 3, 4)}, ValueError, r"grid must be \(rows, columns\), but it is \(2, 3, 4\)"),
    ],
)
def test_transformers_say_what_is_wrong_with_their_sizes(without_annotation_checks, network, sizes, error, sentence):
    with pytest.raises(error, match=sentence):
        TRANSFORMERS[network](**sizes)


@pytest.mark.parametrize("network", ["denoiser", "hollow"])
def test_a_readout_has_no_negative_number_of_blocks(network):
    with pytest.raises(ValueError, match="film_blocks must be at least 0, but it is -1"):
        TRANSFORMERS[network](film_blocks=-1)


@pytest.mark.parametrize(
    ("sizes", "error", "sentence"),
    [
        ({"length": 0}, ValueError, "length must be at least 1, but it is 0"),
        ({"num_tokens": 1}, ValueError, "num_tokens must be at least 2, but it is 1"),
        ({"width": 1}, ValueError, "width must be at least 2, but it is 1"),
        ({"layers": 0}, ValueError, "layers must be at least 1, but it is 0"),
        ({"chunk_rows": 0}, ValueError, "chunk_rows must be at least 1, but it is 0"),
        ({"width": "wide"}, TypeError, "width must be a whole number, but it is 'wide' of type str"),
    ],
)
def test_an_mlp_energy_says_what_is_wrong_with_its_sizes(without_annotation_checks, sizes, error, sentence):
    with pytest.raises(error, match=sentence):
        MLPEnergy(**({"length": 6} | sizes))


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"num_tokens": 1}, "num_tokens must be at least 2, but it is 1"),
        ({"chunk_tokens": 0}, "chunk_tokens must be at least 1, but it is 0"),
    ],
)
def test_a_transformer_energy_says_what_is_wrong_with_its_sizes(sizes, sentence):
    with pytest.raises(ValueError, match=sentence):
        TransformerEnergy(**({"num_tokens": 5} | sizes))


@pytest.mark.parametrize(("width", "heads"), [(4, 2), (6, 3), (24, 4), (768, 12)])
def test_a_width_of_any_multiple_of_twice_the_heads_will_do(width, heads):
    with torch.device("meta"):
        assert made(Denoiser, 5, 4, width=width, heads=heads).body.sizes.head_width == width // heads
