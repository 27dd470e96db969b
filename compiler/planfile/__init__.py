"""Plans as files. In: JSON, or a ``Schedule``. Out: a ``Plan``, or JSON and text. Begin with ``file.py``."""
