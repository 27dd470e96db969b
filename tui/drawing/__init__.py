"""Pictures of a run. In: a Scenario and its Result. Out: the text of a trace or an SVG; each kind is a file."""
