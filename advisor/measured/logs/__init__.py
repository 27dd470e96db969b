"""Logs of benchmarks on real GPUs. In: what they print. Out: rows that ``tables`` reads. Begin with ``read.py``."""
