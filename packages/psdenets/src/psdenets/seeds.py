"""Random generators that depend only on an address (seed, stream, counters).

No random state is passed from step to step, so a run resumed at step k draws the same numbers as an uninterrupted one.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(seed: int, stream: str, *counters: int) -> int:
    """63 bits of the SHA-256 of the address, so neighbouring addresses give unrelated seeds."""
    address = ":".join([str(seed), stream, *map(str, counters)])
    return int.from_bytes(hashlib.sha256(address.encode()).digest()[:8], "big") >> 1


def generator(seed: int, stream: str, *counters: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator for this address, e.g. `generator(0, "noise", step)`."""
    return torch.Generator(device).manual_seed(seed_of(seed, stream, *counters))


@contextmanager
def seeded(seed: int, stream: str, *counters: int) -> Iterator[None]:
    """Context in which torch's global CPU generator is seeded from this address, for layers that take no generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, stream, *counters))
        yield
