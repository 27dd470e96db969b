"""Orders of runtimes for whole layers. In: the graph and its simulations. Out: the best of each runtime."""
