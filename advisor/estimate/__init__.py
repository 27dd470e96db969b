"""Times without cache lines. In: an ``OpPlan``. Out: its makespan, within milliseconds. Begin with ``makespan.py``."""
