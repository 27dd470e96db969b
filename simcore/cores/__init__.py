"""Loops that give the same integers. In: a ``Program``. Out: a ``Run``: times in ticks. Begin with ``engine.py``."""
