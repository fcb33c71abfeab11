"""Clocks of ranks are set against each other, and what cannot be told from noise is left alone."""
