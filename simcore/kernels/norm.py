"""Two times, imperfectly overlapped: the p-norm by which the fitted forms join their terms."""


def p_norm(one: float, other: float, power: float) -> float:
    """``(one**power + other**power) ** (1 / power)``; no power is huge, since the larger term stands outside."""
    smaller, larger = sorted((one, other))
    return larger * float((1 + (smaller / larger) ** power) ** (1 / power)) if larger else 0.0
