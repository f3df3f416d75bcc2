"""Writing to replay: records, windows and sequences as items."""
