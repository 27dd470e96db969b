"""In: the ``config.json`` of a language model, and a system. Out: ``.mgs`` text with the workloads of a layer."""
