"""The learner: batches, updates, published weights and checkpoints."""
