"""The commands on graphs: what ``advise``, ``sweep`` and others do where the workload is a whole layer."""
