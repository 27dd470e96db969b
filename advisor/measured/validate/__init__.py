"""``magus validate``. In: rows. Out: errors by GPU and operation, beside targets. Begin with ``report.py``."""
