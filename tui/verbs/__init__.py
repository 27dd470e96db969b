"""The commands as typer sees them: their options, and the call that runs each. ``table.py`` lists them."""
