"""What a seed draws: numbers that depend on their key alone.

Every draw has a generator of its own, PCG64 (O'Neill, 2014) keyed by a hash of (seed, cause, rank, step): the order in
which anything is built does not matter, and a rank has the same luck on a larger system. Each takes one number u of 53
bits, uniform in (0, 1), and inverts the distribution, so that no draw depends on a library's sampling.
"""

import math
from fractions import Fraction
from hashlib import sha256
from statistics import NormalDist

import numpy as np

from ...compiler.ir import Distribution, Shape

DEVIATIONS = 4
"""Standard deviations at which a normal distribution is cut off."""


def drawn(distribution: Distribution, seed: int, cause: str, rank: int, step: str) -> Fraction:
    """Return the value of ``distribution`` for that key."""
    # Where there is one value, nothing is drawn: a hash and a generator for each of many writes take seconds.
    constant = distribution.shape is Shape.CONSTANT
    return _value(distribution, Fraction(0) if constant else uniform(seed, cause, rank, step))


def uniform(seed: int, cause: str, rank: int, step: str) -> Fraction:
    """A number in (0, 1) that depends on the key alone."""
    key = sha256(f"{seed}/{cause}/{rank}/{step}".encode()).digest()
    raw = int(np.random.PCG64(int.from_bytes(key[:16], "little")).random_raw())
    return Fraction(2 * (raw >> 11) + 1, 1 << 54)


def _value(distribution: Distribution, u: Fraction) -> Fraction:
    """The quantile of ``distribution``, which is not constant, at ``u``."""
    first = distribution.arguments[0]
    match distribution.shape:
        case Shape.CONSTANT:
            return first
        case Shape.UNIFORM:
            return first + (distribution.arguments[1] - first) * u
        case Shape.NORMAL:
            normal = NormalDist()
            tail = normal.cdf(-DEVIATIONS)
            return first * Fraction(normal.inv_cdf(tail + float(u) * (1 - 2 * tail)))
        case _:  # exponential
            return first * Fraction(-math.log1p(-float(u)))
