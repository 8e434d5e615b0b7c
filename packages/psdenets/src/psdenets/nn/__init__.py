"""Layers and hidden drifts; faster versions of some of them live in `psdenets.nn.fast`."""
