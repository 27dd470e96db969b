"""The base of enumerations that stand in keys of what is looked up often."""

from enum import Enum


class Word(Enum):
    """An enumeration whose members are hashed by identity, of which ``Enum`` hashes the names, in Python."""

    __hash__ = object.__hash__
