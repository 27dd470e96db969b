"""Learned proposals. In: a scenario. Out: schedules as a search would find them. Begin with ``proposal_model.py``."""
