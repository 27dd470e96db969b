"""Names to resolved data. In: a ``Scope``. Out: scenarios, expectations and parameters. Begin with ``file.py``."""
