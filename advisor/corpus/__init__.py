"""The corpus: drawn scenarios, each with every plan that a full search simulated. Begin with ``record.py``.

In: a seed. Out: records in a store, and the table that models are fitted to.
"""
