"""Steps: times of layers in -> the time of a whole training step out, by stage and microbatch."""
