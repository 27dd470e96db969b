"""``magus calibrate``. In: rows. Out: constants of a profile, and their held-out errors. Begin with ``run.py``."""
