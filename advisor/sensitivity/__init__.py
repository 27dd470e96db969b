"""The answer to other numbers: from how many rows on it holds, and which hardware numbers change it."""
