"""Comparison with measurements. In: tables of measured times. Out: errors of the models, and refitted profiles."""
