"""Peak memory of one loss with its gradient and of one step of each sampler, at 50,000 states.

The unit is one (batch, dim, states) float32 tensor. The network is a table of logits, so that what it needs itself (the
logits, and in training their gradient) is known and subtracted. Each case runs in a process of its own.

    python benchmarks/memory.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from measure import in_own_process, peak_bytes
from torch import nn

from sddm import Diffusion, losses
from sddm.marginals import MarginalModel, Marginals
from sddm.processes import Absorbing, Process, Uniform
from sddm.query import Query, at_positions
from sddm.randomness import StreamPerSample
from sddm.samplers import Analytical, Corrector, Euler, Exact, TauLeaping
from sddm.schedules import Constant

BATCH, DIM, STATES = 4, 256, 50_000
PROCESSES = {"uniform": Uniform, "absorbing": Absorbing}
STEPS = {
    "Euler": Euler(),
    "Analytical": Analytical(),
    "TauLeaping": TauLeaping(),
    "Corrector": Corrector(),
    "Exact": Exact(),
}
LOSSES = ("ratio_matching", "conditional_ratio_matching", "x0_cross_entropy", "ct_elbo")


class Table(MarginalModel):
    """Logits that are parameters: the cheapest network there is."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.randn(BATCH, DIM, classes))
        self.length, self.implicit = DIM, True

    def forward(self, process: Process, query: Query) -> Marginals:
        return self.from_logits(at_positions(self.logits, query.positions), process, query.t)


def measure(process_name: str, case: str) -> float:
    """Units of memory beyond the network's own."""
    process = PROCESSES[process_name](STATES, Constant(1.0)).leaving(0.02)
    diffusion = Diffusion(process, Table(STATES))
    x = torch.randint(STATES, (BATCH, DIM))
    unit = BATCH * DIM * STATES * 4
    before = peak_bytes()
    if case in LOSSES:
        getattr(losses, case)(diffusion, x).sum(-1).mean().backward()
        own = unit  # the gradient of the logits
    else:
        own = 0
        t, s = (torch.full((BATCH,), v, dtype=torch.float64) for v in (0.5, 0.45))
        with torch.inference_mode():
            STEPS[case](diffusion, Query(x, t), s, StreamPerSample(range(BATCH)))
    return (peak_bytes() - before - own) / unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs=2, metavar=("PROCESS", "CASE"), help="measure one case and print it as JSON")
    parser.add_argument("--out", type=Path, default=None, help="write the table to this JSON file")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(*arguments.case)))
        return
    table: dict[str, dict[str, float]] = {}
    print(f"Units of one ({BATCH}, {DIM}, {STATES}) float32 tensor ({BATCH * DIM * STATES * 4 / 2**20:.0f} MiB)")
    print(f"{'':28s}" + "".join(f"{name:>12s}" for name in PROCESSES))
    for case in (*LOSSES, *STEPS):
        table[case] = {}
        for name in PROCESSES:
            table[case][name] = round(in_own_process(__file__, "--case", name, case), 2)
        print(f"{case:28s}" + "".join(f"{table[case][name]:12.2f}" for name in PROCESSES), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
