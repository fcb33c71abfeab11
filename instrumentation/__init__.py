"""Reference runs: small models that are really split over processes, instrumented as any user would.

Read in this order: ``config`` (what can be asked), ``model``, ``recipes/`` (how each kind of parallelism is put together
from PyTorch's parts), ``train`` (the loop they share), ``launch`` (all ranks on this machine).
"""
