"""A model of your own table of categories: rows that were never there, with the dependencies of those that were.

python examples/own_table.py my-table.csv
"""

import sys
from pathlib import Path

import sddm
from sddm.metrics import cramers_v

data = sddm.data.load(sys.argv[1])
model = sddm.fit(data, steps=int(sys.argv[2]) if len(sys.argv) > 2 else 2000, batch_size=256, out="my-table")

made = model.sample(1000, steps=50, seed=0)
model.codec.write(made, Path("made.csv"))
print(f"{len(made)} rows in made.csv, such as {model.decode(made)[0]}")
print("Association of the columns (Cramer's V), data and samples:")
print(cramers_v(data.tokens[:]), cramers_v(made), sep="\n")
