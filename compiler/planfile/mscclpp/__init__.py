"""Execution plans of MSCCL++. In: their JSON. Out: a ``WrittenPlan``. Begin with ``read.py``."""
