"""Schedules of pairs and of graphs as resolved data: chunk plans, the choices they come from, regions and blocks."""
