"""Lists and sizes in sentences about a space."""

from collections.abc import Sequence


def listed(words: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def size_text(num_bytes: int) -> str:
    """A size for reading, in the largest binary unit that leaves at least one.

    >>> size_text(117_440_512), size_text(1500), size_text(100)
    ('112 MiB', '1.5 KiB', '100 B')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes >= 1 << 10 * power:
            return f"{num_bytes / (1 << 10 * power):.1f}".removesuffix(".0") + f" {unit}"
    return f"{num_bytes} B"
