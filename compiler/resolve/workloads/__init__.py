"""Workloads. In: the statements of a workload. Out: ``Workload``: its tensors, and ops that read from each other."""
