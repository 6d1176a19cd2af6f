"""How long a training takes, over the time that was announced before it, on three models.

The announced time is that of `sddm train`: the median of some steps after a warm-up, and a part of an evaluation. The
ratio is that of the whole training with its checkpoints, evaluations and early samples, on one machine in one state.

    python benchmarks/announced_time.py --minutes 2        # of training for each model
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from measure import seconds

from sddm._memory import keep_freed_memory
from sddm.data import load
from sddm.fit import few_positions
from sddm.recipe import ModelConfig, suited
from sddm.training import TrainingConfig, train
from sddm.training.diffusion import measured
from sddm.training.pace import steps_in

MODELS = ("masked", "hollow", "mlp-energy")


def ratio(model: str, data: str, minutes: float) -> dict[str, float]:
    rows, apart = load(data).split(0.1, 0)
    architecture, training = suited(ModelConfig(model=model), TrainingConfig(), rows)
    diffusion = architecture.build(rows)
    training = few_positions(diffusion, training)
    began = time.monotonic()
    cost = measured(diffusion, rows, training, apart)
    pace = steps_in(minutes, cost, training.evaluate_every)
    measuring = time.monotonic() - began
    config = replace(training, steps=pace.steps)
    with tempfile.TemporaryDirectory() as folder:
        taken = seconds(lambda: train(diffusion, rows, config, held_out=apart, out=Path(folder), progress=False))
    announced = cost.seconds(pace.steps, training.evaluate_every)
    return {
        "steps": pace.steps,
        "seconds of measuring": measuring,
        "seconds announced": announced,
        "seconds taken": taken,
        "ratio": taken / announced,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--data", default="2spirals")
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    keep_freed_memory()  # as the command does
    for model in arguments.only:
        print(json.dumps({"model": model, **ratio(model, arguments.data, arguments.minutes)}), flush=True)


if __name__ == "__main__":
    main()
