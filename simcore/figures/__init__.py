"""Figures of a run. In: a ``Run``. Out: a ``Result``: times, traffic, use, critical path, deadlocks."""
