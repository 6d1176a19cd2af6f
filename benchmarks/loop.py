"""What the training loop costs beside the bare step: data, moving average, logging, checkpoints.

The bare step is what any loop has to do with the same model: draw a batch and its noise, loss, gradient, clipping,
optimizer. A run writes its usual metrics and a checkpoint every 250 steps. After each of its steps a bare step of a
twin model is made and timed, so that both see the machine in the same state; the rest of the time is the loop's.

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
from sddm._memory import keep_freed_memory
from sddm.losses import conditional_ratio_matching
from sddm.marginals import Hollow
from sddm.processes import Uniform
from sddm.schedules import Constant
from sddm.training import TrainingConfig, train

STATES, LENGTH, BATCH = 27, 32, 32
SIZES = {"width": 64, "layers": 2, "heads": 2, "mlp": 256}


def fresh() -> Diffusion:
    torch.manual_seed(0)
    process = Uniform(STATES, Constant(1.0)).leaving(0.02)
    return Diffusion(process, Hollow.for_process(process, LENGTH, **SIZES))


def bare_step(tokens: Tensor) -> Callable[[], None]:
    diffusion = fresh()
    optimizer = torch.optim.AdamW(diffusion.parameters(), 1e-3, fused=True)

    def step() -> None:
        batch = tokens[torch.randint(len(tokens), (BATCH,))]
        optimizer.zero_grad()
        conditional_ratio_matching(diffusion, batch).sum(-1).mean().backward()
        nn.utils.clip_grad_norm_(diffusion.parameters(), 5.0)
        optimizer.step()

    return step


def run(tokens: Tensor, steps: int) -> tuple[float, float]:
    """Seconds a step of the loop and of the bare step."""
    config = TrainingConfig(steps, batch_size=BATCH, save_every=250, evaluate_every=10 * steps)
    step, taken = bare_step(tokens), []
    with tempfile.TemporaryDirectory() as folder:

        def also(number: int, loss: float) -> None:
            taken.append(seconds(step))

        whole = seconds(lambda: train(fresh(), tokens, config, out=folder, progress=False, report=also))
    return (whole - sum(taken)) / steps, sum(taken) / steps


def main() -> None:
    keep_freed_memory()  # as the commands do
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--out", type=Path, default=None, help="write the results to this JSON file")
    arguments = parser.parse_args()
    tokens = torch.randint(STATES, (5_000, LENGTH))
    run(tokens, 20)  # warms up
    pairs = [run(tokens, arguments.steps) for _ in range(arguments.repeats)]
    shares = [bare / loop for loop, bare in pairs]
    results = {
        "loop": summary([loop for loop, _ in pairs]),
        "bare": summary([bare for _, bare in pairs]),
        "throughput of the loop": summary(shares),
    }
    for name in ("loop", "bare"):
        low, high = results[name]["quartiles"]
        print(f"{name:6s}{results[name]['median'] * 1e3:8.2f} ms a step   quartiles {low * 1e3:.2f} {high * 1e3:.2f}")
    low, high = results["throughput of the loop"]["quartiles"]
    print(f"the loop runs at {median(shares):.1%} of the bare step's throughput (quartiles {low:.1%} {high:.1%})")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
