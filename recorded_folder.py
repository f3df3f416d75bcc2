"""Where a run keeps the episodes that it has recorded."""

RECORDED = "episodes/recorded-v0"
"""Folder of the Minari data set in a run directory; `episodes` can be Minari's own folder of data sets."""
