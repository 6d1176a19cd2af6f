"""Sound fonts (.sf2): recorded tones of instruments, and how they become the tone of any key.

    preset  ->  zones, each for some keys  ->  instrument  ->  zones, each for some keys  ->  a sample and its settings

Settings are numbered "generators". Those of a preset are added to those of its instrument. Read are the ones that make
a plain tone: pitch, loop, loudness over time, and place between left and right. Filters and vibrato are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int16

RECORDS = {
    b"phdr": np.dtype([("name", "S20"), ("number", "<u2"), ("bank", "<u2"), ("first", "<u2"), ("rest", "V12")]),
    b"inst": np.dtype([("name", "S20"), ("first", "<u2")]),
    b"shdr": np.dtype(
        [
            ("name", "S20"),
            *((name, "<u4") for name in ("start", "end", "loop", "loop_end", "rate")),
            *(("root", "u1"), ("correction", "i1"), ("rest", "V4")),
        ]
    ),
    **dict.fromkeys((b"pbag", b"ibag"), np.dtype([("first", "<u2"), ("modulator", "<u2")])),
    **dict.fromkeys((b"pgen", b"igen"), np.dtype([("kind", "<u2"), ("amount", "<i2")])),
}
PAN, HOLD, DECAY, ATTACK, SUSTAIN, RELEASE = 17, 35, 36, 34, 37, 38
INSTRUMENT, KEYS, VELOCITIES, ATTENUATION, COARSE, FINE, SAMPLE = 41, 43, 44, 48, 51, 52, 53
LOOPS, SCALE, ROOT = 54, 56, 58
DEFAULTS = {HOLD: -12_000, DECAY: -12_000, ATTACK: -12_000, RELEASE: -12_000, SCALE: 100, ROOT: -1}
"""What stands for settings that are not there, if it is not 0."""
PLACES = {"start": (0, 4), "end": (1, 12), "loop": (2, 45), "loop_end": (3, 50)}
"""The settings that move the places of a sample: by samples, and by 32768 samples."""
VELOCITY = 80
SILENCE = 960
"""Centibels below full loudness that are not heard."""
LONGEST_RELEASE = 0.5
"""Seconds that a tone rings on at most."""

Zone = Mapping[int, int]


@dataclass(frozen=True)
class SoundFont:
    """The samples of a sound font, and one of its presets."""

    samples: Int16[np.ndarray, "samples"]
    headers: np.ndarray
    zones: list[list[Zone]]
    """Those that sound for each of the 128 keys; keys beyond those of the preset have the zones of the nearest one."""

    @classmethod
    def read(cls, path: Path, preset: int = 0, bank: int = 0) -> SoundFont:
        """A preset of a file; 0 is a piano."""
        content = path.read_bytes()
        try:
            chunks = dict(_chunks(content, 12, len(content)))
            records = {name: np.frombuffer(chunks[name], kind) for name, kind in RECORDS.items()}
            samples = np.frombuffer(chunks[b"smpl"], "<i2")
            (place,) = np.flatnonzero((records[b"phdr"]["number"] == preset) & (records[b"phdr"]["bank"] == bank))[:1]
            zones = list(_zones(records, int(place)))
            by_key = {key: suiting for key in range(128) if (suiting := [z for z in zones if _suits(z, key)])}
            keys = np.array(list(by_key))
            nearest = [by_key[int(keys[np.abs(keys - key).argmin()])] for key in range(128)]
        except (KeyError, ValueError, IndexError):
            raise ValueError(f"{str(path)!r} is damaged or not a sound font with preset {preset}.") from None
        return cls(samples, records[b"shdr"], nearest)

    def tone(self, key: int, held: float, rate: int) -> Float32[np.ndarray, "2 samples"]:
        """The sound, left and right, of a key that is held for so many seconds, and of its ringing on."""
        layers = [self._layer(zone, key, held, rate) for zone in self.zones[key]]
        sound = np.zeros((2, max(layer.shape[1] for layer in layers)), dtype=np.float32)
        for layer in layers:
            sound[:, : layer.shape[1]] += layer
        return sound

    def _layer(self, zone: Zone, key: int, held: float, rate: int) -> Float32[np.ndarray, "2 samples"]:
        header = self.headers[_of(zone, SAMPLE)]
        start, end, loop, loop_end = (
            int(header[name]) + _of(zone, fine) + 32_768 * _of(zone, coarse) for name, (fine, coarse) in PLACES.items()
        )
        root = int(header["root"]) if _of(zone, ROOT) < 0 else _of(zone, ROOT)
        cents = (key - root) * _of(zone, SCALE) + 100 * _of(zone, COARSE) + _of(zone, FINE) + int(header["correction"])
        release = min(LONGEST_RELEASE, _seconds(_of(zone, RELEASE)))
        num = round((held + release) * rate)
        places = start + np.arange(num) * (int(header["rate"]) / rate * 2 ** (cents / 1200))
        if _of(zone, LOOPS) & 1 and loop_end > loop:
            places = np.where(places < loop_end, places, loop + (places - loop) % (loop_end - loop))
        places = places[places < end - 1]
        before = places.astype(np.int64)
        share = places - before
        wave = self.samples[before] * (1 - share) + self.samples[before + 1] * share
        wave *= 10 ** (-(_loss(zone, np.arange(len(places)) / rate, held, release) + _of(zone, ATTENUATION)) / 200)
        pan = np.clip(_of(zone, PAN) / 1_000 + 0.5, 0, 1)
        return (np.stack([wave * np.cos(pan * np.pi / 2), wave * np.sin(pan * np.pi / 2)]) / 2**15).astype(np.float32)


def _loss(zone: Zone, times: Float[np.ndarray, "samples"], held: float, release: float) -> Float[np.ndarray, "samples"]:
    """Centibels below full loudness: an attack, a hold, a decay to the level at which the tone stays, and its end."""
    attack, hold, decay = (_seconds(_of(zone, kind)) for kind in (ATTACK, HOLD, DECAY))
    rising = -200 * np.log10(np.clip(times / attack, 10 ** (-SILENCE / 200), 1))
    falling = np.clip((times - attack - hold) / decay * SILENCE, 0, np.clip(_of(zone, SUSTAIN), 0, SILENCE))
    ending = np.clip((times - held) / release, 0, 1) * SILENCE
    return rising + falling + ending


def _seconds(timecents: int) -> float:
    return float(2 ** (timecents / 1_200))


def _of(zone: Zone, kind: int) -> int:
    return zone.get(kind, DEFAULTS.get(kind, 0))


def _suits(zone: Zone, key: int) -> bool:
    """Whether a zone sounds for a key. The two bytes of a range are its lowest and its highest value."""
    ranges = ((zone.get(kind, 0x7F00), value) for kind, value in ((KEYS, key), (VELOCITIES, VELOCITY)))
    return all(amount & 0x7F <= value <= amount >> 8 & 0x7F for amount, value in ranges)


def _zones(records: Mapping[bytes, Any], preset: int) -> Iterator[Zone]:
    """The zones of a preset with a sample, each with all its settings."""
    for outer in _settings(records[b"phdr"], records[b"pbag"], records[b"pgen"], preset, INSTRUMENT):
        for zone in _settings(records[b"inst"], records[b"ibag"], records[b"igen"], outer[INSTRUMENT], SAMPLE):
            added = {kind: amount for kind, amount in outer.items() if kind not in (INSTRUMENT, KEYS, VELOCITIES)}
            sums = {kind: _of(zone, kind) + amount for kind, amount in added.items()}
            narrowed = {kind: _both(zone.get(kind), outer[kind]) for kind in (KEYS, VELOCITIES) if kind in outer}
            yield {**zone, **sums, **narrowed}


def _settings(owners: Any, bags: Any, generators: Any, owner: int, last: int) -> Iterator[dict[int, int]]:
    """The settings of each zone of an owner that ends in a `last` generator; a first zone without it is for all."""
    common: dict[int, int] = {}
    for bag in range(int(owners["first"][owner]), int(owners["first"][owner + 1])):
        span = generators[int(bags["first"][bag]) : int(bags["first"][bag + 1])]
        zone = {int(kind): int(amount) for kind, amount in span}
        if last in zone:
            yield {**common, **zone}
        elif not common:
            common = zone


def _both(inner: int | None, outer: int) -> int:
    """The range in which two ranges overlap."""
    inner = 0x7F00 if inner is None else inner
    return max(inner & 0x7F, outer & 0x7F) | min(inner >> 8 & 0x7F, outer >> 8 & 0x7F) << 8


def _chunks(content: bytes, place: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    """The names and the contents of the chunks of a RIFF file, and of those in its lists."""
    while place + 8 <= end:
        name, size = content[place : place + 4], int.from_bytes(content[place + 4 : place + 8], "little")
        if name == b"LIST":
            yield from _chunks(content, place + 12, place + 8 + size)
        else:
            yield name, content[place + 8 : place + 8 + size]
        place += 8 + size + size % 2
