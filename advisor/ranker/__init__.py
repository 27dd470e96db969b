"""The learned ranking.

In: a scenario and choices. Out: predicted times; and how the model is trained. Begin with ``trees.py``.
"""
