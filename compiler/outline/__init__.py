"""Outlines to plans. In: an ``Outline``. Out: the steps of each rank. Begin with ``write.py``."""
