"""Transformers from flat options: places, sizes and what else a network takes."""

from dataclasses import fields

from sddm.networks import Places, Sizes


def made(network, *counts, length=None, grid=None, **options):
    """>>> made(Denoiser, 5, 4, length=6, width=8, film_blocks=0)"""
    sizes = {field.name: options.pop(field.name) for field in fields(Sizes) if field.name in options}
    return network(*counts, Places(length, grid), Sizes(**sizes), **options)
