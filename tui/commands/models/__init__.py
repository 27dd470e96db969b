"""The commands on models: what is learned from searches, and constants compared with and fitted to measured times."""
