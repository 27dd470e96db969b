"""The commands on scenarios and plans: read, checked, written, simulated, carried out, and made from other files."""
