"""Pictures of answers as files: traces and drawings of one run, and the report."""
