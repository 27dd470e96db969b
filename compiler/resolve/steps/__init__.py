"""Steps: ``workload train on pod { step layer; sequences 128 x 8192 }``, their schedules and spaces -> StepScenario."""
