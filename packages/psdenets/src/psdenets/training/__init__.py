"""Training: the loop, its checkpoints and display, and what the other systems do instead."""
