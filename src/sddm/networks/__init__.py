"""Plain neural networks. They know tokens and times, nothing of processes."""

from sddm.networks.denoiser import Denoiser
from sddm.networks.energy import EnergyNetwork, MLPEnergy
from sddm.networks.energy_transformer import TransformerEnergy
from sddm.networks.hollow import HollowTransformer
from sddm.networks.sizes import BERT_BASE, MUSIC, Places, Sizes

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
    "Denoiser",
    "EnergyNetwork",
    "HollowTransformer",
    "MLPEnergy",
    "Places",
    "Sizes",
    "TransformerEnergy",
]
