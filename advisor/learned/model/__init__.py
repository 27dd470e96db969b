"""The shipped proposal model: ``proposals.model``, written by ``magus train``, with its card inside."""
