"""Text written back: its canonical form, comments, and the same text with other numbers."""
