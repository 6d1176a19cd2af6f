"""One training step and one analytical sampling step of each model at the paper's full size.

Batch sizes are small: what is measured is that the whole model trains and samples here, and what a sequence costs: in
seconds, and in floating-point operations of matrix products, which are the same on any machine. The state of training
is what does not grow with the batch: weights, gradients, the two moments of Adam and the average, 20 bytes a parameter.

    python benchmarks/full_size.py --out results/benchmarks/full_size.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from measure import in_own_process, peak_bytes, seconds
from torch.utils.flop_counter import FlopCounterMode

from sddm import Diffusion
from sddm.losses import conditional_ratio_matching
from sddm.marginals import Energy, Hollow, MarginalModel, Masked
from sddm.networks import BERT_BASE, MUSIC
from sddm.processes import Process, Uniform
from sddm.query import Query
from sddm.randomness import StreamPerSample
from sddm.samplers import Analytical
from sddm.schedules import Constant


@dataclass(frozen=True)
class Case:
    """A model of the paper: states, length, rows of a batch here, and how many positions a row the loss evaluates."""

    states: int
    length: int
    batch: int
    positions: int | None
    model: Callable[[Process, int], MarginalModel]


STATE_BYTES = 5 * 4
CASES = {
    "music, hollow": Case(129, 256, 2, None, lambda process, dim: Hollow.for_process(process, dim, sizes=MUSIC)),
    "images, masked": Case(
        512, 64, 1, 4, lambda process, dim: Masked.for_process(process, grid=(8, 8), sizes=BERT_BASE)
    ),
    "32 bits, energy": Case(2, 32, 128, None, lambda process, dim: Energy.mlp(process, dim)),
}


def measure(name: str) -> dict[str, float]:
    """Operations of the first step of each kind, seconds of the second one, and the peak memory of the process."""
    case = CASES[name]
    torch.manual_seed(0)
    process = Uniform(case.states, Constant(1.0)).leaving(0.02)
    diffusion = Diffusion(process, case.model(process, case.length))
    optimizer = torch.optim.AdamW(diffusion.parameters(), 1e-4, fused=True)
    x = torch.randint(case.states, (case.batch, case.length))
    t, s = (torch.full((case.batch,), value, dtype=torch.float64) for value in (0.5, 0.49))

    def training() -> None:
        optimizer.zero_grad()
        conditional_ratio_matching(diffusion, x, num_positions=case.positions).sum(-1).mean().backward()
        optimizer.step()

    def sampling() -> None:
        with torch.no_grad():  # in inference mode the counter of operations fails
            Analytical()(diffusion, Query(x, t), s, StreamPerSample(range(case.batch)))

    result: dict[str, float] = {"parameters": sum(p.numel() for p in diffusion.parameters()), "batch": case.batch}
    result |= {"states": case.states, "length": case.length, "positions": case.positions or case.length}
    for key, action in (("training", training), ("sampling", sampling)):
        with FlopCounterMode(display=False) as counter:
            action()
        result[f"{key} GFLOP a row"] = counter.get_total_flops() / case.batch / 1e9
        result[f"{key} seconds"] = seconds(action)
    result["state MiB"] = STATE_BYTES * result["parameters"] / 2**20
    result["peak MiB"] = peak_bytes() / 2**20
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), help="measure one case, print it as JSON")
    parser.add_argument("--out", type=Path, default=None, help="write the results to this JSON file")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case)))
        return
    results = {}
    print(f"{'model':18s}{'parameters':>14s}{'batch':>7s}{'training s':>12s}{'sampling s':>12s}{'peak MiB':>10s}")
    for name in CASES:
        row = results[name] = in_own_process(__file__, "--case", name)
        print(
            f"{name:18s}{row['parameters']:14,d}{row['batch']:7d}{row['training seconds']:12.2f}"
            f"{row['sampling seconds']:12.2f}{row['peak MiB']:10.0f}",
            flush=True,
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
