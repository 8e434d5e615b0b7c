"""Classifiers: the PSDE-BNN and the other systems of the paper's Table 1."""
