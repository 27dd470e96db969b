"""Evaluation of the proposals. In: a table. Out: scores on families held out of it. Begin with ``evaluate.py``."""
