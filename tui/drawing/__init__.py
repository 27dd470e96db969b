"""Pictures of a run. In: an OpCase and its Result. Out: the text of a trace or an SVG; each kind is a file."""
