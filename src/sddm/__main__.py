"""python -m sddm, which is what launchers such as torchrun call."""

from sddm.cli import main

main()
