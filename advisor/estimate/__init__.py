"""Times without cache lines. In: an ``OpPlan``. Out: an ``Estimate`` in milliseconds. Begin with ``makespan.py``."""
