"""Reading from replay: sampling from all shards, datasets, batches and priority updates."""
