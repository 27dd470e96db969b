"""Steps: a StepScenario in -> the time, memory and losses of each schedule and layout, and which to use out."""
