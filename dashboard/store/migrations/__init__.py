"""How did the schema come to be what it is? One file per step under ``versions``."""
