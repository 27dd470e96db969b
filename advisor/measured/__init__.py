"""How far the models are from measurements on real GPUs."""
