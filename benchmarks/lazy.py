"""What lazy steps save: the share of the positions for which the model is asked, and the time.

The share follows from the process and the grid alone, whatever the model: the mean over the steps of the largest chance
to leave a value. The time is that of sampling in so many lazy steps, relative to as many plain steps of the same kind,
whose time is that of `PLAIN` of them, scaled. 32 bits, weights as they are initialised.

    python benchmarks/lazy.py --out results/benchmarks/lazy.json        # some minutes on two cores
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

import torch
from measure import seconds

from sddm import Diffusion, sample
from sddm._memory import keep_freed_memory
from sddm.marginals import Energy, MarginalModel, Masked
from sddm.networks import MLPEnergy
from sddm.processes import Uniform
from sddm.samplers import Analytical, Euler, Lazy, uniform_in_share
from sddm.samplers.steps import OneDraw
from sddm.schedules import SqrtCosine

STEPS: dict[str, OneDraw] = {"analytical": Analytical(), "euler": Euler()}
NUMBERS, PLAIN, LENGTH = (10, 20, 50, 100, 1000), 10, 32


def share(process: Uniform, step: OneDraw, number: int) -> float:
    times = uniform_in_share(process, number)
    return float(step.most(process, times[:-1], times[1:])[:, 0].mean())


def relative_time(diffusion: Diffusion, step: OneDraw, number: int, rows: int, repeats: int) -> float:
    def time(sampler: Lazy | OneDraw, steps: int) -> float:
        return seconds(lambda: sample(diffusion, rows, steps, sampler, generator=torch.Generator().manual_seed(0)))

    ratios = [time(Lazy(step), number) / (time(step, PLAIN) * number / PLAIN) for _ in range(repeats + 1)]
    return median(ratios[1:])


def main() -> None:
    keep_freed_memory()  # as the commands do
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    process = Uniform(2, SqrtCosine(1.0)).leaving(0.02)
    models: dict[str, tuple[MarginalModel, int]] = {
        "energy MLP, 3 x 256": (Energy(MLPEnergy(LENGTH), implicit=False), 256),
        "masked transformer, 3 x 32": (Masked.for_process(process, LENGTH, width=32, heads=2, mlp=128), 32),
    }
    results = []
    print(f"{'':>28s}{'steps':>12s}" + "".join(f"{number:>9d}" for number in NUMBERS))
    for name, step in STEPS.items():
        asked = {number: share(process, step, number) for number in NUMBERS}
        print(f"{'share asked':>28s}{name:>12s}" + "".join(f"{value:9.3f}" for value in asked.values()))
        times = {}
        for title, (model, rows) in models.items():
            diffusion = Diffusion(process, model)
            times[title] = {n: relative_time(diffusion, step, n, rows, arguments.repeats) for n in NUMBERS}
            print(f"{title:>28s}{name:>12s}" + "".join(f"{value:9.3f}" for value in times[title].values()), flush=True)
        results.append({"step": name, "share": asked, "relative time": times})
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
