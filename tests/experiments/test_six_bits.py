"""The exact laws of samplers on six bits, against samples, and the tables they go into."""

import math

import pytest
import torch

from enumerated import UNLIKELY, p_value, seeded
from sddm import sample
from sddm.experiments.enumerated import STATES, Bits, exact_law, index_of, law_of_bits
from sddm.experiments.runner import reproduce
from sddm.experiments.samplers import COLUMNS, FLOOR, Sampled, Samplers
from sddm.experiments.ways import WAYS
from sddm.samplers import Analytical, Corrector, Euler, Informed, Refreshing, Trapezoidal, uniform_in_share


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("column", ["uniform, flattened", "absorbing, oracle"])
@pytest.mark.parametrize(
    ("step", "corrector"),
    [
        (Euler(), None),
        (Refreshing(share=0.4), Corrector(factor=0.5)),
        (Trapezoidal(), None),
        (Analytical(), Informed(temperature=0.5)),
        (Analytical(), Informed(temperature=math.inf)),
    ],
    ids=repr,
)
def test_samples_of_the_loop_have_the_law_that_is_multiplied_out(column, step, corrector):
    diffusion = Bits(column).diffusion()
    grid = uniform_in_share(diffusion.process, 2)
    with torch.inference_mode():
        law = exact_law(diffusion, step, corrector, grid)
    assert float(law.sum()) == pytest.approx(1)
    x = sample(diffusion, 4000, sampler=step, corrector=corrector, grid=grid, generator=seeded(0), batch_size=4000)
    assert p_value(torch.bincount(index_of(x, STATES), minlength=64), law) > UNLIKELY


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize("way", ["first hitting", "in order", "sweeps of 2 groups"])
def test_evaluations_are_counted_where_they_are_made(way, tmp_path):
    system = Sampled(way, 6)
    drawn = system.draw(Bits("absorbing, oracle"), 50, 0, tmp_path)
    start = 1 if way == "sweeps of 2 groups" else 0
    assert drawn.evaluations == {"sweeps of 2 groups": start + 4}.get(way, 6)


@pytest.mark.usefixtures("without_annotation_checks")
def test_the_tables_say_what_is_exact_and_how_many_evaluations_were_used(tmp_path):
    experiment = Samplers("small")
    cells = [
        "analytical, 4 evaluations",
        "trapezoidal, 4 evaluations",
        "analytical, redrawn blindly, 4 evaluations",
    ]
    names = [f"{cell}/{column}" for cell in cells for column in COLUMNS[:2]]
    results = reproduce(experiment, tmp_path, tmp_path / "work", names)
    found = {(r["row"], r["column"]): r["figures"] for r in results}
    assert len(found) == 6
    assert all(figures["exact"] and 0 < figures["tv"] < 1 for figures in found.values())
    assert found[cells[1], COLUMNS[1]]["evaluations"] == 3  # one for x_T, two for one step
    assert found[cells[2], COLUMNS[0]]["evaluations"] == 3  # nothing is corrected at time 0
    text = (tmp_path / "samplers" / "tables.md").read_text()
    assert "| evaluations | 4 | 6 | 8 | 16 | 32 | 64 |" in text
    assert "(3.0)" in text
    assert (tmp_path / "samplers" / "curves.png").stat().st_size > 1000


def test_every_way_has_rows_and_the_law_is_one():
    rows = Samplers("small").rows
    assert {row.system.way for name, row in rows.items() if name != FLOOR} == set(WAYS)
    assert float(law_of_bits().sum()) == pytest.approx(1)
