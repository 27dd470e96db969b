"""Execution plans of MSCCL++. In: their JSON. Out: a ``Plan``. Begin with ``read.py``."""
