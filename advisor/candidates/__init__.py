"""Candidates to compare. In: a scenario and its space. Out: ``Candidate``s with predicted and simulated times."""
