"""Training: the loop, checkpoints and display, and the training of ensembles, Laplace and HMC."""
