"""Faster versions of layers, each with a plain fallback."""
