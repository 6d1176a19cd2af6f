"""Networks that turn values into tokens and back. How they are trained is in `sddm.tokenizers.learner`."""

from sddm.tokenizers.discriminator import PatchDiscriminator
from sddm.tokenizers.perceptual import Perceptual
from sddm.tokenizers.quantizer import Quantizer
from sddm.tokenizers.sizes import VQGANSizes
from sddm.tokenizers.vqgan import VQGAN

__all__ = ["VQGAN", "PatchDiscriminator", "Perceptual", "Quantizer", "VQGANSizes"]
