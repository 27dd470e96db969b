"""The shipped proposal model: ``proposals.model``, written by ``magus train --proposals``, with its card inside."""
