"""Comparison with measurements. In: tables of measured times. Out: errors of the models, and refitted profiles."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Imported:
    """A text that was made of logs or traces, and how many rows or workloads it has."""

    text: str
    count: int
