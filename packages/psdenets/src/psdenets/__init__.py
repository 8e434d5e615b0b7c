"""Image classifiers of infinite depth whose weights are partially stochastic. Nothing public yet."""
