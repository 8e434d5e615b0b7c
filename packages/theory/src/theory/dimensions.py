"""Dimensions of Theorem 4.2's proof: m1 = max(m, m_gamma), m2 = m_gamma, r = d_y, d_w = m1 + m2, d_h = d_x + m + r."""

from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True)
class Dimensions:
    """All dimensions of the construction; raises ValueError if they are inconsistent.

    Example:
        >>> Dimensions.of(d_x=1, d_y=1, m=1, m_gamma=10)
        Dimensions(d_x=1, d_y=1, m=1, m_gamma=10, m1=10, m2=10, r=1, d_w=20, d_h=3)
    """

    d_x: int  # inputs
    d_y: int  # outputs
    m: int  # noises of the generator
    m_gamma: int  # parameters of the network f_gamma
    m1: int  # noisy weights
    m2: int  # weights that are zero at t2, the extra dimensions of Lemma 3
    r: int  # hidden coordinates between x and eta, which hold the output at t = 1
    d_w: int  # weights
    d_h: int  # hidden coordinates [x, 0_r, eta]

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"expected {name} to be an integer >= 1, got {value!r}")
        expected = {
            "m1": ("max(m, m_gamma)", max(self.m, self.m_gamma)),
            "m2": ("m_gamma", self.m_gamma),
            "r": ("d_y", self.d_y),
            "d_w": ("m1 + m2", self.m1 + self.m2),
            "d_h": ("d_x + m + r", self.d_x + self.m + self.r),
        }
        for name, (formula, value) in expected.items():
            if getattr(self, name) != value:
                raise ValueError(f"expected {name} = {formula} = {value}, got {getattr(self, name)}")
        if self.m < self.d_y:
            raise ValueError(f"expected m >= d_y as in Theorem 4.2, got m={self.m}, d_y={self.d_y}")

    @classmethod
    def of(cls, d_x: int, d_y: int, m: int, m_gamma: int) -> Self:
        """The dimensions that follow from those of the problem and the network."""
        m1 = max(m, m_gamma)
        return cls(d_x, d_y, m, m_gamma, m1, m_gamma, d_y, m1 + m_gamma, d_x + m + d_y)

    @classmethod
    def as_printed(cls, d_x: int, d_y: int, m: int, m_gamma: int) -> Self:
        """The same with r = d_h - d_x - d_w, as printed in Step 1 of the proof; always raises ValueError.

        The last term must be m, the number of weights that are integrated; d_w is larger.
        """
        right = cls.of(d_x, d_y, m, m_gamma)
        return cls(**(asdict(right) | {"r": printed_r(right)}))


def printed_r(dimensions: Dimensions) -> int:
    """r = d_h - d_x - d_w of the paper: -18 for d_x = d_y = m = 1 and m_gamma = 10."""
    return dimensions.d_h - dimensions.d_x - dimensions.d_w
