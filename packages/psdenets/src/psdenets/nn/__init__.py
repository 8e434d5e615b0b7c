"""Layers and hidden drifts; `psdenets.nn.fast` has faster versions of some of them."""
