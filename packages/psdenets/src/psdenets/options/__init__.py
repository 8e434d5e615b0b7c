"""Groups of options: frozen dataclasses that validate themselves. The options of a system are composed of groups."""
