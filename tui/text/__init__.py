"""Plain text for a terminal. In: advice, results, spaces. Out: lines that fit."""
