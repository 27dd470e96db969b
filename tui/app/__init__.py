"""The terminal UI: the only room that imports Textual. Begin with ``app.py``; ``session`` is behind it."""
