"""Classifiers: the PSDE-BNN and the other systems in Table 1 of the paper."""
