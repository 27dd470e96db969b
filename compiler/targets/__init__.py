"""Plans for other programs. In: ``OpCase`` and ``OpPlan``. Out: the text of a file. Begin with ``triton.py``."""
