"""Machines read in. In: a dump of a real machine. Out: a ``system`` as text, with doubts. Begin with ``read.py``."""
