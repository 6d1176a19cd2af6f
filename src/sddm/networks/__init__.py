"""Plain neural networks. They know tokens and times, nothing of processes."""

from sddm.networks.classifier import Classifier
from sddm.networks.energy import EnergyNetwork, MLPEnergy, TransformerEnergy
from sddm.networks.hollow import HollowTransformer
from sddm.networks.sizes import BERT_BASE, MUSIC, Places, Sizes
from sddm.networks.transformer import Denoiser

NETWORKS: dict[str, type] = {
    "mlp-energy": MLPEnergy,
    "transformer-energy": TransformerEnergy,
    "hollow-transformer": HollowTransformer,
    "denoiser": Denoiser,
}

__all__ = [
    "BERT_BASE",
    "MUSIC",
    "NETWORKS",
    "Classifier",
    "Denoiser",
    "EnergyNetwork",
    "HollowTransformer",
    "MLPEnergy",
    "Places",
    "Sizes",
    "TransformerEnergy",
]
