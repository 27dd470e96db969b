"""GPUs, links and switches as resolved data: their numbers, how equal GPUs vary, profiles of writes of peers."""
