"""Implementations. In: one on a scenario. Out: its predicted time, by simulation of its schedule."""
