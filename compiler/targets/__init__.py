"""Plans for other programs. In: ``Scenario`` and ``Schedule``. Out: the text of a file. Begin with ``triton.py``."""
