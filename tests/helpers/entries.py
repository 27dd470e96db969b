"""Entries of a store: keys, and data that cannot be packed."""

from hashlib import sha256


def key(name: object) -> str:
    """The key of an entry."""
    return sha256(str(name).encode()).hexdigest()


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that cannot be packed."""
    return b"".join(sha256(f"{seed}/{block}".encode()).digest() for block in range(-(-size // 32)))[:size]
