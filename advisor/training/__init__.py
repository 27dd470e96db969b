"""Training. In: a seed. Out: a store of searched scenarios, the table of labels, the proposal model, and its scores."""
