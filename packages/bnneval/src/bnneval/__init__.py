"""Calibration, uncertainty and shift metrics for probabilistic classifiers. Nothing public yet."""
