"""The commands as typer sees them: their options, and the call that runs each. ``cli.py`` lists them."""
