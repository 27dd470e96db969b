"""Kernel models: what a kernel costs alone, as work units on SM slots with their memory traffic."""
