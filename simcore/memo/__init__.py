"""Results on disk: from a question, its sources and how to compute it to its answer, remembered or computed."""
