"""Expressions and parameters. In: syntax. Out: exact quantities with their units and origins."""
