"""``magus calibrate``. In: rows. Out: constants of a profile, and their errors on held-out rows. See ``run.py``."""
