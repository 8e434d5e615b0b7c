"""Numerical checks of the theorems on partially stochastic infinitely deep networks. Nothing public yet."""
