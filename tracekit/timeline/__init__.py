"""How is a rank's timeline stored so that any window of it is drawn at once? Tracks of slices, and a pyramid of coverage above them.

A trace goes through ``lanes`` (tracks without overlaps) and ``coverage`` (busy ns per bucket and sort, level by level) into ``files``.
Several of these on one clock are a ``run``, of which ``window`` draws a part (heat map or bars), ``search`` finds and explains slices,
and ``selection`` cuts a part out, for ``chrome`` and ``perfetto`` to write.
"""
