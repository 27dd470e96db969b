"""The commands that advise: one answer, answers over a grid, the space they come from, and answers for runtimes."""
