"""How does a page look into the timelines of a run? Windows, search, details and exports over plain HTTP, nothing kept but caches."""
