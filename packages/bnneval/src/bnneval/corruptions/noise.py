"""Noise, drawn independently per pixel and channel: gaussian, shot, impulse, speckle. x is the image in [0, 1]."""

import numpy as np

from bnneval.corruptions.levels import Image, quantise, unit


def gaussian_noise(image: Image, rng: np.random.Generator, sigma: float) -> Image:
    """x + sigma n,  n standard normal."""
    x = unit(image)
    return quantise(x + rng.normal(scale=sigma, size=x.shape))


def shot_noise(image: Image, rng: np.random.Generator, photons: float) -> Image:
    """Poisson(x c) / c: mean x, variance x / c, for c photons at full brightness."""
    return quantise(rng.poisson(unit(image) * photons) / photons)


def impulse_noise(image: Image, rng: np.random.Generator, amount: float) -> Image:
    """Salt and pepper: each value is replaced, with probability `amount`, by 0 or 1 with equal probability."""
    x = unit(image)
    flipped = rng.random(x.shape) <= amount
    salt = rng.random(x.shape) <= 0.5
    return quantise(np.where(flipped, salt, x))


def speckle_noise(image: Image, rng: np.random.Generator, sigma: float) -> Image:
    """x + x sigma n,  n standard normal: noise proportional to the signal."""
    x = unit(image)
    return quantise(x + x * rng.normal(scale=sigma, size=x.shape))
