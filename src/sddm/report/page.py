"""A report as a page that needs no other file, or as one picture."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from sddm import _files
from sddm.metrics import Figure
from sddm.report.measured import Measured

ENDINGS = (".html", ".png")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #22223b; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; width: 100%; }
th, td { text-align: left; padding: .35em .8em .35em 0; border-bottom: 1px solid #d8dae5; vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
img { max-width: 100%; }
h2 { font-size: 1.1em; margin-top: 2em; }
"""
HEADER = ("", "samples", "data", "if samples had the law of the data")


def write_report(measured: Measured, title: str, path: Path) -> None:
    """Write a page (.html), or its table and pictures as one picture (.png)."""
    from sddm.report.drawn import pictures, table_drawn  # slow to import, and only reports need it

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = pictures(measured)
    if path.suffix == ".html":
        _files.write_text(path, page(measured, title, drawn))
        return
    parts = [table_drawn(title, said(measured), HEADER, lines(measured)), *drawn.values()]
    with _files.replacing(path) as aside:
        _stacked(parts).save(aside)


def page(measured: Measured, title: str, drawn: dict[str, bytes]) -> str:
    """The text of the page. Whatever comes from the table is escaped."""
    columns = [(figure.title, *_values(figure)) for figure in measured.columns]
    images = "\n".join(
        f'<p><img alt="{escape(name)}" src="data:image/png;base64,{b64encode(file).decode()}"></p>'
        for name, file in drawn.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(said(measured))}</p>
{_table(HEADER, lines(measured))}
{images}
<h2>Total variation of each column from the held-out rows</h2>
{_table(("column", "samples", "data"), columns)}
</body>
</html>
"""


def said(measured: Measured) -> str:
    """What is compared with what."""
    return (
        f'{measured.rows:,} samples are compared with {measured.rows:,} held-out rows. The figures under "data" are '
        f"those of {measured.rows:,} training rows in the place of the samples: what chance alone gives. The last two "
        f"figures are about privacy: distances to all {measured.trained_on:,} training rows, of samples and of "
        "held-out rows. Errors are standard errors."
    )


def lines(measured: Measured) -> list[tuple[str, ...]]:
    """The table of figures: its name, of samples, of data, and what would be best."""
    return [(figure.title, *_values(figure), measured.best[figure.name]) for figure in measured.figures]


def _values(figure: Figure) -> tuple[str, str]:
    assert figure.of_data is not None
    return (
        f"{figure.value:.4f} ± {figure.standard_error or 0:.4f}",
        f"{figure.of_data:.4f} ± {figure.of_data_standard_error or 0:.4f}",
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{' class=number' * (0 < i < 3)}>{escape(cell)}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _stacked(files: Sequence[bytes]) -> Image.Image:
    """Pictures of one width, one below the other."""
    parts = [np.asarray(Image.open(BytesIO(file)).convert("RGB")) for file in files]
    return Image.fromarray(np.concatenate(parts))
