"""Times of single kernels and collectives by the fitted forms, for schedulers of other projects. In: sizes. Out: us."""
