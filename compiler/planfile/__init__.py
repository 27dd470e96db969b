"""Plans as files. In: JSON, or an ``OpPlan``. Out: a ``WrittenPlan``, or JSON and text. Begin with ``file.py``."""
