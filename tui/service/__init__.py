"""Advice over HTTP: JSON in and out, for runtimes in other languages. Only ``app.py`` imports the web library."""
