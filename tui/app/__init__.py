"""The terminal UI: the only room that imports Textual. Begin with ``lifecycle.py`` and ``app.py``."""
