"""The run directory: its files, predictions, metrics, plots and report."""
