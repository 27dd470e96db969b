"""What a run means. In: a ``Run``. Out: a ``Result``: times, traffic, use, critical path, deadlocks."""
