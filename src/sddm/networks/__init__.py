"""Plain neural networks. They know tokens and times, nothing of processes."""

from sddm.networks.energy import EnergyNetwork, MLPEnergy

NETWORKS: dict[str, type] = {
    "mlp-energy": MLPEnergy,
}

__all__ = ["NETWORKS", "EnergyNetwork", "MLPEnergy"]
