"""Workloads. In: the statements of a workload. Out: ``Workload``: tensors, one collective, the kernels beside it."""
