"""Answers about graphs: schedules that a file declares, and advice for all ops together, side by side."""
