"""The lower bound. In: a ``Scenario``. Out: a ``Bound`` that no schedule beats. Begin with ``lower_bound.py``."""
