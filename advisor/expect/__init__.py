"""``magus test``. In: expectations. Out: which hold, and the figures behind them. Begin with ``run.py``."""
