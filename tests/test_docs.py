"""What the documents show runs."""

import csv
import re
import shlex
from pathlib import Path

import jaxtyping
import pytest
import torch

from sddm.cli import main
from sddm.codecs import CODECS
from sddm.experiments import EXPERIMENTS
from sddm.marginals import MODELS
from sddm.metrics import METRICS
from sddm.processes import PROCESSES
from sddm.samplers import SAMPLERS
from sddm.schedules import SCHEDULES

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tables_restored():
    tables = (SCHEDULES, PROCESSES, MODELS, SAMPLERS, EXPERIMENTS, CODECS, METRICS)
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def run_blocks(document):
    names = {"__name__": "document"}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, document, "exec"), names)
    return names


@pytest.mark.usefixtures("at_full_speed")
def test_the_readme_runs_and_its_model_learns_to_sort(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = run_blocks("README.md")
    bits, error = names["sddm"].likelihood.bound(names["model"], names["tokens"][:8]).bits_per_dim
    # Independent uniform tokens cost log2(20) = 4.3 bits; a model that learnt anything of the order costs less.
    assert bits + 4 * error < 4.3
    samples = names["sddm"].sample(names["model"], num=100, steps=30, generator=torch.Generator().manual_seed(1))
    ascending = (samples[:, 1:] >= samples[:, :-1]).double().mean()
    assert ascending > 0.75  # unordered tokens: 0.525


@pytest.mark.usefixtures("tables_restored")
def test_every_extension_of_the_guide_works_and_can_be_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_blocks("docs/extending.md")
    assert "| data | 100% in order |" in (tmp_path / "results" / "sorting" / "table.md").read_text()
    assert names["samples"].shape == (4, 8)
    diffusion = names["diffusion"]
    diffusion.save_pretrained(tmp_path / "saved")
    again = type(diffusion).from_pretrained(tmp_path / "saved")
    x, t = torch.randint(5, (3, 8)), torch.rand(3)
    assert torch.equal(again.marginals(x, t).log_xt, diffusion.marginals(x, t).log_xt)
    assert repr(again.process) == repr(diffusion.process)
    dna = names["dna"]
    dna.save_pretrained(tmp_path / "dna")
    again = type(dna).from_pretrained(tmp_path / "dna")
    assert again.decode(again.sample(4, steps=10, seed=0)) == names["strands"]
    assert {len(strand) for strand in names["strands"]} == {4}
    assert [figure.name for figure in names["gaps"]] == ["mmd", "gc_gap"]
    assert 0 <= names["gaps"][1].value <= 1
    assert names["gc_gap"](names["real"], names["real"], names["dna"].codec) == 0


@pytest.mark.usefixtures("at_full_speed")
def test_the_guide_to_python_fits_samples_and_fills_what_it_shows():
    names = run_blocks("docs/python.md")
    assert [step for step, _ in names["told"]] == [10, 20, 20]
    assert len(names["ways"]) == 5
    assert names["whole"].index.tolist() == ["x", "y"]
    assert names["whole"]["colour"].notna().all()


def test_every_model_of_the_guide_can_be_built():
    run_blocks("docs/models.md")


@pytest.mark.usefixtures("at_full_speed")
def test_every_sampler_of_the_guide_samples():
    run_blocks("docs/sampling.md")


@pytest.mark.usefixtures("at_full_speed")
def test_the_python_of_the_guide_to_images_runs():
    names = run_blocks("docs/images.md")
    assert names["codes"].tokens.shape == (32, 4)
    assert names["codec"].decode(names["codes"].tokens[:2]).shape == (2, 8, 8, 3)


@pytest.mark.usefixtures("at_full_speed")
def test_the_python_of_the_guide_to_music_runs():
    names = run_blocks("docs/music.md")
    assert names["scores"].shape == names["by_d3pm"].shape == (2, 1, 32)
    for made in (names["codec"].encode(names["by_d3pm"]), names["by_tauldr"]):
        assert torch.equal(made[:, :8], names["start"].values[:, :8])


@pytest.mark.usefixtures("at_full_speed")
def test_the_walk_through_a_table_is_as_it_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gaps.csv").write_text("income,sex\n" + "1234.5,F\n,M\n77,\n" * 10)
    text = (ROOT / "docs/tables.md").read_text(encoding="utf-8")
    names = run_blocks("docs/tables.md")
    tiny = {"train": "--steps 2 --batch-size 8 --width 8 --layers 1 --heads 2 --mlp 8", "sample": "--steps 3"}
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            command, *options = shlex.split(line)[1:]
            main([command, *options, *shlex.split(tiny[command])])
    said = capsys.readouterr()
    shown = re.search(r"```\n(id: .*?)```", text, re.DOTALL)[1]
    assert shown in said.out
    assert shown in said.err
    texts = [(tmp_path / f"{name}.csv").read_text().splitlines() for name in ("women", "filled")]
    women, filled = (list(csv.DictReader(lines)) for lines in texts)
    assert all(int(row["age"]) >= 40 and row["sex"] == "F" and row["income"] for row in women)
    assert (len(women), len(filled), {row["country"] for row in women}) == (20, 30, {"CH"})
    assert [row["income"] for row in filled[::3]] == ["1234.5"] * 10
    assert [row["sex"] for row in filled[1::3]] == ["M"] * 10
    assert "id" not in women[0]
    assert set(names["women"]["age"]) <= {40, 41, 42}
    assert names["women"]["income"] == [None] * 8
    assert (names["filled"]["age"][0], names["filled"]["income"][1]) == (30, 1234.5)


@pytest.mark.usefixtures("at_full_speed")
def test_the_guide_to_guidance_leads_to_the_samples_it_wants():
    """The 16 samples are rows of equal tokens, a third of them 2, if nobody asks for them."""
    names = run_blocks("docs/guidance.md")
    for samples in (names["guided"], names["classified"]):
        assert float((samples == 2).double().mean()) > 1 / 3 + 4 * (2 / 9 / 16) ** 0.5
    assert float((names["away"] == 2).double().mean()) < 1 / 3
    assert names["made"].effective.shape == (20, 8)


@pytest.mark.usefixtures("at_full_speed")
def test_the_guide_to_molecules_steers_to_larger_log_p():
    names = run_blocks("docs/molecules.md")
    log_p = {name: names["property_of"]("log_p", names[name]).nanmean() for name in ("lines", "samples", "steered")}
    assert float(log_p["steered"]) > float(log_p["samples"]) + 0.5
    assert float(log_p["steered"]) > float(log_p["lines"]) + 0.5


@pytest.mark.usefixtures("at_full_speed")
def test_the_guide_to_text_fills_a_hole_in_the_middle_of_a_line():
    names = run_blocks("docs/text.md")
    assert all(line.startswith("it was ") and line.endswith(" worst") for line in names["completed"])
    assert {len(line) for line in names["completed"]} == {16}
    names_of_figures = [figure.name.removeprefix("bits_per_character") for figure in names["figures"]]
    assert names_of_figures == ["", "_of_ngrams", "_of_gzip", "_of_bz2"]
    assert names["figures"][0].value < 3.5  # 15 characters, each as likely as the others: 3.9


def test_the_type_checks_are_on():
    with pytest.raises(jaxtyping.TypeCheckError):
        SCHEDULES["constant"](1.0).primitive(torch.zeros(3, dtype=torch.float32))


def test_the_documents_name_only_files_that_exist():
    for document in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
        for target in re.findall(r"`(?:python )?((?:tests|benchmarks|examples)/[\w/]+\.py)", text):
            assert (ROOT / target).exists(), f"{document.name} names {target}"
