"""Run directories: files, predictions, metrics, plots and report."""
