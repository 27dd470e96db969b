"""Times without cache lines. In: a ``Schedule``. Out: an ``Estimate`` in milliseconds. Begin with ``makespan.py``."""
