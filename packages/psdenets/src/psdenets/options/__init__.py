"""Options in groups: frozen dataclasses that check themselves. The systems are composed of them."""
