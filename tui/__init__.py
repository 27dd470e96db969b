"""The command line and the terminal UI. Importing this imports neither typer nor Textual."""
