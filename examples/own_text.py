"""A model of your own text: one line of the file, one sample.

python examples/own_text.py my-lines.txt
"""

import sys

import sddm

model = sddm.fit(sys.argv[1], steps=int(sys.argv[2]) if len(sys.argv) > 2 else 2000, out="my-text")

print("\nSamples:")
print("\n".join(model.decode(model.sample(8, seed=0))))

print("\nSamples with a given beginning:")
beginning = model.codec.read_prefix(model.decode(model.sample(1, seed=1))[0][:2], model.length)
print("\n".join(model.decode(model.sample(4, condition=sddm.Condition.from_blanks(beginning[0]), seed=0))))
