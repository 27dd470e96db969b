"""Traces of runs on real GPUs. In: Chrome JSON of torch.profiler. Out: workloads as text. Begin with ``read.py``."""
