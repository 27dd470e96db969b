"""Magus says which compute/communication overlap schedule to use on a multi-GPU system, and proves it."""

__version__ = "0.1.0"
