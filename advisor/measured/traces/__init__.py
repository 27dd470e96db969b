"""Traces of runs on real GPUs. In: Chrome JSON or Chakra. Out: workloads as text. Begin with ``workloads.py``."""
