"""The paper's experiments, and a demonstration. To add an experiment: a file, and one line in the table below."""

from collections.abc import Callable
from typing import Any

from sddm.experiments.chorales import Chorales
from sddm.experiments.curves import Steps, Training
from sddm.experiments.experiment import Experiment
from sddm.experiments.guidance import Guidance
from sddm.experiments.images import Images, ImagesSteps
from sddm.experiments.learning import Learning, Objectives
from sddm.experiments.music import Music, MusicSteps
from sddm.experiments.orders import Orders
from sddm.experiments.samplers import Samplers
from sddm.experiments.synthetic import Synthetic
from sddm.experiments.tables import Tables
from sddm.experiments.trained_samplers import TrainedSamplers

EXPERIMENTS: dict[str, Callable[[str], Experiment[Any]]] = {
    "synthetic": Synthetic,
    "steps": Steps,
    "training": Training,
    "learning": Learning,
    "objectives": Objectives,
    "orders": Orders,
    "samplers": Samplers,
    "samplers-trained": TrainedSamplers,
    "tables": Tables,
    "music": Music,
    "music-steps": MusicSteps,
    "images": Images,
    "images-steps": ImagesSteps,
    "chorales": Chorales,
    "guidance": Guidance,
}
"""Each is made for a scale, small or paper."""
