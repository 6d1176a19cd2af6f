"""How the cost of all conditionals grows with the length D, the number of states C and the number of positions k.

Counts passes through the network and times the evaluation of the conditionals of each parameterization, as a table and
a picture: O(1) passes for hollow and leave-one-out, O(k) for masked, O(k C) for energy.

    python benchmarks/scaling.py --picture results/benchmarks/scaling.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

import matplotlib
import torch
from measure import seconds

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from sddm import Diffusion
from sddm.marginals import Energy, Hollow, LeaveOneOut, Masked
from sddm.processes import Uniform
from sddm.query import Query
from sddm.randomness import random_positions
from sddm.schedules import Constant

SIZES = {"width": 64, "layers": 2, "heads": 4, "mlp": 128}
KINDS = {"hollow": Hollow, "leave-one-out": LeaveOneOut, "masked": Masked, "energy": Energy}
COLOURS = {"hollow": "#1b6ca8", "leave-one-out": "#2a9d8f", "masked": "#e9a23b", "energy": "#c8553d"}
BATCH, DIM, STATES, POSITIONS = 2, 32, 8, 8
SWEEPS = {
    "D (all positions)": [(d, STATES, d) for d in (8, 16, 32, 64)],
    "C (8 of 32 positions)": [(DIM, c, POSITIONS) for c in (2, 4, 8, 16, 32)],
    "k (of 32 positions)": [(DIM, STATES, k) for k in (1, 2, 4, 8, 16, 32)],
}


def passes(kind: str, states: int, num: int) -> int:
    """Sequences through the network for the conditionals at `num` positions of one sequence."""
    return {"hollow": 1, "leave-one-out": 1, "masked": num, "energy": num * (states - 1) + 1}[kind]


def milliseconds(kind: str, dim: int, states: int, num: int, repeats: int) -> float:
    process = Uniform(states, Constant(1.0))
    diffusion = Diffusion(process, KINDS[kind].for_process(process, dim, **SIZES)).eval()
    x, t = torch.randint(states, (BATCH, dim)), torch.rand(BATCH, dtype=torch.float64)
    positions = random_positions(BATCH, dim, num)

    def evaluate() -> None:
        diffusion(Query(x, t, positions))

    with torch.inference_mode():
        evaluate()
        return 1e3 * median(seconds(evaluate) for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=None, help="write the results to this JSON file")
    parser.add_argument("--picture", type=Path, default=None, help="draw them into this PNG file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    results: dict[str, list[dict[str, object]]] = {}
    for sweep, points in SWEEPS.items():
        print(f"\n{sweep:24s}" + "".join(f"{kind + ' ms (passes)':>26s}" for kind in KINDS))
        results[sweep] = []
        for dim, states, num in points:
            row: dict[str, object] = {"D": dim, "C": states, "k": num}
            for kind in KINDS:
                row[kind] = milliseconds(kind, dim, states, num, arguments.repeats)
                row[f"{kind} passes"] = passes(kind, states, num)
            results[sweep].append(row)
            cells = "".join(f"{row[kind]:17.2f} ({row[f'{kind} passes']:6d})" for kind in KINDS)
            print(f"D {dim:4d}  C {states:4d}  k {num:4d}  {cells}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    if arguments.picture:
        draw(results, arguments.picture)


def draw(results: dict[str, list[dict[str, object]]], path: Path) -> None:
    figure, axes = plt.subplots(1, len(results), figsize=(12, 3.8), sharey=True)
    for axis, (sweep, rows) in zip(axes, results.items(), strict=True):
        for kind in KINDS:
            axis.plot(
                [row[sweep[0]] for row in rows], [row[kind] for row in rows], "o-", color=COLOURS[kind], label=kind
            )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel(sweep)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("milliseconds")
    axes[0].legend(frameon=False, fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
