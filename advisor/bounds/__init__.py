"""The lower bound. In: an ``OpCase``. Out: a ``Bound`` that no schedule beats. Begin with ``lower_bound.py``."""
