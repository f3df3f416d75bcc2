"""Central inference: requests of actors in batches, and the state of each actor."""
