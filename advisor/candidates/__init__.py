"""What is compared. In: a scenario and its space. Out: ``Candidate`` objects with predicted and simulated times."""
