"""In: a scenario and sizes. Out: a ``PolicyTable``: which schedule from which size to which, for runtimes."""
