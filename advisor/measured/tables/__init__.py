"""Tables of measured times. In: CSV. Out: rows with the predictions of the models."""
