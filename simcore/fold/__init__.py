"""One rank for all that are alike.

In: a ``Program``. Out: a smaller one, and its ``Run`` unfolded. Begin with ``run.py``.
"""
