"""The other systems of the paper's Table 1: networks whose weights are numbers, and ways to be unsure about them."""
