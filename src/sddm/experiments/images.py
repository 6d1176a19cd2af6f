"""Pictures of CIFAR-10: by models of VQGAN codes, and by models of pixels at a small resolution.

`sddm reproduce images` fills the paper's Table 2, all models of a column with the same sizes and minutes of training.
`sddm reproduce images-steps` samples the models of codes in 20 to 250 evaluations, as the paper's Table 4 does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from sddm import _files
from sddm.baselines.tauldr import recipe as tauldr
from sddm.diffusion import Diffusion
from sddm.experiments import image_report
from sddm.experiments.corpora import Corpus
from sddm.experiments.experiment import SAMPLES, Cell, Experiment, Row, slug
from sddm.experiments.music import with_steps
from sddm.experiments.systems import Drawn, Source, System
from sddm.experiments.timed import Timed, TimedD3PM, TimedDiffusion
from sddm.experiments.tokenized import TOKENIZERS, pixels
from sddm.metrics import features, fid, kid
from sddm.recipe import ModelConfig, Recipe, SamplingConfig
from sddm.training import TrainingConfig
from sddm.training.batches import generator_of
from sddm.training.loop import MODEL

CODES, SMALL_PIXELS, PICTURES = "codes", "pixels, 8 x 8", "pixels, 32 x 32"
"""The columns. In the last one there is no model, only the test set: the floor of the metrics."""
SIDES = {SMALL_PIXELS: 8, PICTURES: 32}
TEST_SET = "test set"
"""The row of data against data; of codes it is the tokenizer's reconstruction."""
MANY, FEWER, REFERENCE = 5_000, 500, 10_000
"""Samples of a cell, samples where the number of steps varies, and pictures of the training set beside them."""
BOUND_ROWS, BOUND_TIMES = 250, 16
KEPT = 100
"""Samples that are shown."""
GRID = (8, 8)
"""Rows and columns of the codes of a picture."""
RATE = 0.007
"""Of the paper's uniform noise, between each two of 512 codes. It leaves exp(-512 * 0.007) = 0.028 of the data."""
STEPS = (20, 40, 50, 100, 200, 250)
"""The evaluations of the paper's Table 4."""


@dataclass(frozen=True)
class HeldOut(System):
    """Rows that no model was trained on."""

    def draw(self, source: Source, num: int, seed: int, folder: Path) -> Drawn:
        assert isinstance(source, Corpus)
        return Drawn(source.test.tokens[:num])


@dataclass(frozen=True)
class Sized:
    """What all models have in common."""

    minutes: float
    width: int
    layers: int
    steps: int
    """Evaluations of the network in sampling, without those of correctors."""
    batch: int

    @property
    def training(self) -> TrainingConfig:
        return TrainingConfig(batch_size=self.batch, optimizer="muon", learning_rate=5e-3)

    def of_codes(self) -> dict[str, Timed]:
        """SDDM by three models, and its rivals on the network of the third."""
        left = math.exp(-RATE * 512)
        paper = ModelConfig("hollow", "uniform", "constant", left)
        analytical, euler = SamplingConfig(sampler="analytical"), SamplingConfig(sampler="euler")
        masked = {"num_positions": 8}
        return {
            "SDDM-VQ hollow, analytical": self._diffusion(paper, analytical),
            "SDDM-VQ hollow, Euler": self._diffusion(paper, euler),
            "SDDM-VQ leave-one-out, analytical": self._diffusion(replace(paper, model="leave-one-out"), analytical),
            "SDDM-VQ masked, analytical": self._diffusion(
                replace(paper, model="masked"), SamplingConfig(sampler="lazy"), **masked
            ),
            "tauLDR-VQ uniform": self._tauldr(512, "uniform", 0),
            "D3PM-VQ uniform": self._d3pm("uniform", GRID),
        }

    def of_pixels(self) -> dict[str, Timed]:
        """The paper's rows of pixels."""
        side = SIDES[SMALL_PIXELS]
        rows = {f"D3PM {chain}": self._d3pm(chain, (side, 3 * side)) for chain in ("gaussian", "uniform", "absorbing")}
        taus = {f"tauLDR-{rounds} birth-death": self._tauldr(256, "birth-death", rounds) for rounds in (0, 10)}
        return {**rows, **taus}

    def _sized(self, model: ModelConfig) -> ModelConfig:
        return replace(model, width=self.width, layers=self.layers, film_blocks=0)

    def _diffusion(self, model: ModelConfig, sampling: SamplingConfig, **training: Any) -> TimedDiffusion:
        settings = replace(self.training, **training)
        steps = replace(sampling, steps=self.steps)
        return TimedDiffusion(self.minutes, Recipe(self._sized(replace(model, grid=GRID)), settings, steps))

    def _tauldr(self, num_states: int, process: str, rounds: int) -> TimedDiffusion:
        """With its own process, loss, times and sampler; the optimizer is that of all rows."""
        known = tauldr(num_states, process, rounds)
        side = SIDES[SMALL_PIXELS]
        grid = GRID if process == "uniform" else (side, 3 * side)
        training = replace(self.training, loss=known.training.loss, times=known.training.times)
        sampling = replace(known.sampling, steps=self.steps)
        return TimedDiffusion(self.minutes, Recipe(self._sized(replace(known.model, grid=grid)), training, sampling))

    def _d3pm(self, chain: str, grid: tuple[int, int]) -> TimedD3PM:
        model = self._sized(ModelConfig("leave-one-out", "uniform", grid=grid))
        return TimedD3PM(self.minutes, model, self.training, taken=self.steps, chain=chain)


SCALES = {"small": Sized(10.0, 128, 3, 100, 64), "paper": Sized(2_880.0, 768, 12, 1_000, 128)}


class Images(Experiment[Row]):
    """`sddm reproduce images`: FID and KID of samples, beside the paper's Table 2."""

    family = "images"

    def __init__(self, scale: str) -> None:
        sized = SCALES[scale]
        self.models: dict[str, dict[str, Timed]] = {CODES: sized.of_codes(), SMALL_PIXELS: sized.of_pixels()}
        rows = {TEST_SET: Row(HeldOut(), MANY)}
        for systems in self.models.values():
            rows |= {name: Row(system, MANY) for name, system in systems.items()}
        super().__init__("images", scale, rows, [PICTURES, CODES, SMALL_PIXELS])

    def cells(self) -> list[Cell]:
        return [
            cell for cell in super().cells() if cell.row == TEST_SET or cell.row in self.models.get(cell.column, {})
        ]

    def source(self, column: str) -> Corpus:
        return pixels(SIDES[column]) if column in SIDES else TOKENIZERS[self.scale].corpus()

    def measure(self, drawn: Drawn, source: Source, row: Row, seed: int) -> dict[str, Any]:
        """FID and KID against pictures of the training set, and the bits of a position of the test set."""
        assert isinstance(source, Corpus)
        reference = pixels(SIDES[PICTURES]) if source.name == CODES else source
        made, data = pictures(source, drawn.tokens), pictures(reference, reference.train.tokens[:REFERENCE])
        of_samples, of_data = features(made), features(data)
        distance, mmd = fid(of_samples, of_data), kid(of_samples, of_data)
        figures: dict[str, Any] = {
            "fid": distance.value,
            "fid_standard_error": distance.standard_error,
            "fid_corrected": distance.corrected,
            "kid": mmd.value,
            "kid_standard_error": mmd.standard_error,
        }
        if isinstance(drawn.model, Diffusion):
            figures["parameters"] = sum(p.numel() for p in drawn.model.parameters())
            generator = generator_of(seed, "bound", 0)
            bound = drawn.model.bound(source.test.tokens[:BOUND_ROWS], BOUND_TIMES, generator=generator)
            figures |= dict(zip(("bits", "bits_standard_error"), bound.bits_per_dim, strict=True))
        return figures

    def headline(self, figures: dict[str, Any]) -> str:
        return f"FID {figures['fid']:.2f}, KID x 1000 {1000 * figures['kid']:.2f}"

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        text = image_report.table(results, self.columns, self.scale, MANY, REFERENCE)
        _files.write_text(folder / "tables.md", text)

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        """Sheets of samples; of the tokenizer, its curve and reconstructions; the reverse process, and completions."""
        for cell in self.cells():
            made = work / slug(f"{cell.name}-0") / SAMPLES
            if made.exists():
                tokens = _files.load_tensors(made)[1]["tokens"][:KEPT]
                image_report.samples(pictures(self.source(cell.column), tokens), folder / f"{slug(cell.name)}.png")
        tokenizer = TOKENIZERS[self.scale]
        image_report.tokenizer_curve(tokenizer.curve(), folder)
        for name, system in self.models[CODES].items():
            trained = work / slug(f"{system.training}/{CODES}-0")
            if isinstance(system, TimedDiffusion) and (trained / MODEL).exists():
                model = system.trained(self.source(CODES), 0, trained)
                image_report.reverse_process(model, system.recipe.sampling, folder / f"{slug(name)}-reverse.png")
                test = self.source(CODES).test.tokens[: image_report.COMPLETED]
                image_report.completions(model, system.recipe.sampling, test, folder / f"{slug(name)}-completed.png")


class ImagesSteps(Images):
    """`sddm reproduce images-steps`: FID and KID by the number of evaluations, beside the paper's Table 4."""

    systems = ("SDDM-VQ hollow, Euler", "SDDM-VQ hollow, analytical", "D3PM-VQ uniform")

    def __init__(self, scale: str) -> None:
        models = SCALES[scale].of_codes()
        self.models = {CODES: {}}
        rows = {}
        for name in self.systems:
            for steps in STEPS:
                system = with_steps(models[name], steps)
                rows[f"{name}, {steps} evaluations"] = Row(system, FEWER)
        Experiment.__init__(self, "images/steps", scale, rows, [CODES])

    def cells(self) -> list[Cell]:
        return Experiment.cells(self)

    def report(self, results: list[dict[str, Any]], folder: Path) -> None:
        _files.write_text(folder / "tables.md", image_report.steps_table(results, STEPS, self.scale, FEWER))

    def pictures(self, results: list[dict[str, Any]], work: Path, folder: Path) -> None:
        image_report.steps_curve(results, folder / "curve.png")


def pictures(corpus: Corpus, tokens: Any) -> UInt8[np.ndarray, "num height width channels"]:
    """What rows of a corpus show."""
    return np.asarray(corpus.test.codec.decode(tokens))
