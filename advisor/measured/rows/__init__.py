"""Measurements made for Magus, as tables: how each was made stands at its top."""
