"""Workloads. In: the statements of a workload. Out: ``Graph``: its tensors, and ops that take results of each other."""
