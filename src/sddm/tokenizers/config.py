"""How to train a tokenizer: one documented dataclass, which is also the command line's help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sddm import _checks
from sddm.tokenizers.sizes import VQGANSizes
from sddm.training.config import RunConfig
from sddm.training.optimizers import rate_at


@dataclass(frozen=True)
class TokenizerConfig(RunConfig):
    """How to train a tokenizer, and its sizes."""

    steps: int = 20_000
    """Number of training steps. The paper trains for 90 epochs of ImageNet."""
    filters: int = 64
    """Filters of the first block. 16 trains about ten times as fast on a CPU, and suits small pictures."""
    multipliers: Sequence[int] = (1, 2, 4)
    """The filters of each block, in these. A code stands for a patch of 4 x 4 pixels with three blocks, of 8 x 8 with
    four."""
    blocks: int = 2
    """Residual blocks in each block, and beside the codes."""
    codes: int = 512
    """How many codes there are."""
    code_width: int = 256
    """Numbers in a code."""
    learning_rate: float = 1e-4
    """Peak learning rate of Adam, for both networks: it rises over the warm-up and falls along a cosine to 0."""
    warmup: float = 0.05
    """Share of the steps over which the learning rate rises from 0."""
    commitment: float = 0.25
    """Weight of the loss that keeps features near their codes."""
    perceptual_weight: float = 0.1
    """Weight of the distance in the features of VGG16, if there is a file with its weights."""
    adversarial_weight: float = 0.1
    """Weight of the adversary; 0 for none."""
    adversarial_start: float = 0.25
    """The share of the steps after which the adversary begins."""
    patience: int = 100
    """A code that was used for no patch of so many steps is replaced."""
    ema: float = 0.999
    """Decay of the moving average of the weights, which is what training returns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sizes(channels=3)
        object.__setattr__(self, "multipliers", tuple(self.multipliers))
        _checks.positive(self.learning_rate, "learning_rate")
        _checks.whole(self.patience, "patience", 1)
        for name in ("warmup", "ema", "adversarial_start"):
            _checks.share(getattr(self, name), name)
        for name in ("commitment", "perceptual_weight", "adversarial_weight"):
            weight = _checks.finite(getattr(self, name), name)
            _checks.require(weight >= 0, f"{name} must be at least 0, but it is {weight:g}.")

    def sizes(self, channels: int) -> VQGANSizes:
        """The sizes of the network for pictures of so many channels."""
        return VQGANSizes(self.filters, self.multipliers, self.blocks, self.codes, self.code_width, channels)

    @property
    def lasting(self) -> dict[str, Any]:
        """As it is after a way through JSON."""
        return super().lasting | {"multipliers": list(self.multipliers)}

    def rate_at(self, step: int) -> float:
        """The learning rate of this step, as a share of the peak."""
        return rate_at(step, self.steps, self.warmup)

    def is_adversarial(self, step: int) -> bool:
        """Whether the adversary takes part in this step."""
        return self.adversarial_weight > 0 and step >= self.adversarial_start * self.steps
