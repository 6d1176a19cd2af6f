"""What the training loop costs beside the bare step: data, moving average, logging, checkpoints.

The bare step is what any loop has to do with the same model: draw a batch and its noise, loss, gradient, clipping,
optimizer. The loop runs in a folder with its usual logging and a checkpoint every 100 steps, without evaluation. Both
run in turns, and the ratio is the median over the turns.

    python benchmarks/loop.py --out results/benchmarks/loop.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from measure import seconds, summary
from torch import Tensor, nn

from sddm import Diffusion
from sddm.losses import conditional_ratio_matching
from sddm.marginals import Hollow
from sddm.processes import Uniform
from sddm.schedules import Constant
from sddm.training import TrainingConfig, train

STATES, LENGTH, BATCH, STEPS = 27, 32, 32, 200
SIZES = {"width": 64, "layers": 2, "heads": 2, "mlp": 256}


def fresh() -> Diffusion:
    torch.manual_seed(0)
    process = Uniform(STATES, Constant(1.0)).leaving(0.02)
    return Diffusion(process, Hollow.for_process(process, LENGTH, **SIZES))


def bare(tokens: Tensor) -> Callable[[], None]:
    diffusion = fresh()
    optimizer = torch.optim.AdamW(diffusion.parameters(), 1e-3, fused=True)

    def steps() -> None:
        for _ in range(STEPS):
            batch = tokens[torch.randint(len(tokens), (BATCH,))]
            optimizer.zero_grad()
            conditional_ratio_matching(diffusion, batch).sum(-1).mean().backward()
            nn.utils.clip_grad_norm_(diffusion.parameters(), 5.0)
            optimizer.step()

    return steps


def loop(tokens: Tensor) -> Callable[[], None]:
    config = TrainingConfig(STEPS, batch_size=BATCH, save_every=100, evaluate_every=10 * STEPS)

    def steps() -> None:
        with tempfile.TemporaryDirectory() as folder:
            train(fresh(), tokens, config, out=folder, progress=False)

    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=None, help="write the results to this JSON file")
    arguments = parser.parse_args()
    tokens = torch.randint(STATES, (5_000, LENGTH))
    actions = {"bare": bare(tokens), "loop": loop(tokens)}
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(arguments.repeats + 1):
        for name in sorted(actions, reverse=bool(turn % 2)):
            time = seconds(actions[name])
            if turn:  # the first turn warms up
                taken[name].append(time / STEPS)
    ratio = median(a / b for a, b in zip(taken["bare"], taken["loop"], strict=True))
    results = {name: summary(values) for name, values in taken.items()} | {"throughput of the loop": ratio}
    for name in actions:
        low, high = results[name]["quartiles"]
        print(f"{name:6s}{results[name]['median'] * 1e3:8.2f} ms a step   quartiles {low * 1e3:.2f} {high * 1e3:.2f}")
    print(f"the loop runs at {ratio:.1%} of the bare step's throughput")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
