"""Random numbers by address: the generator of (seed, stream, counters) is a function of its arguments alone.

Nothing random is carried from step to step, so that a run resumed at step k draws what the uninterrupted one drew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(seed: int, stream: str, *counters: int) -> int:
    """63 bits of SHA-256 of the address: neighbouring addresses give unrelated seeds."""
    address = ":".join([str(seed), stream, *map(str, counters)])
    return int.from_bytes(hashlib.sha256(address.encode()).digest()[:8], "big") >> 1


def generator(seed: int, stream: str, *counters: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator at that address, e.g. ``generator(0, "noise", step)``."""
    return torch.Generator(device).manual_seed(seed_of(seed, stream, *counters))


@contextmanager
def seeded(seed: int, stream: str, *counters: int) -> Iterator[None]:
    """While inside, torch's global CPU numbers come from that address: layers of torch.nn take no generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, stream, *counters))
        yield
