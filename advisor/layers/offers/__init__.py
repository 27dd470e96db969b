"""What can be switched on today for a graph. In: the graph and its simulations. Out: the best table of each runtime."""
