"""Layers and hidden drifts."""
