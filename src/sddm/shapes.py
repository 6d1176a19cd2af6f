"""The shapes that stand in most signatures, by name. The axes are checked at run time in the tests."""

from jaxtyping import Float, Float64, Int
from torch import Tensor

Tokens = Int[Tensor, "batch dim"]
Laws = Float[Tensor, "batch dim symbols"]
"""A number for each symbol that a position can hold: probabilities, their logarithms, rates or weights."""
Asked = Int[Tensor, "batch num"]
"""The positions that are asked for, or the tokens there."""
AskedLaws = Float[Tensor, "batch num symbols"]
"""As `Laws`, at the positions that are asked for."""
Times = Float64[Tensor, "batch"]
"""A time t for each row, as it is after it was checked."""
Tau = Float64[Tensor, "batch"]
"""For each row, how far the clock of the process runs: tau = B(s, t)."""
