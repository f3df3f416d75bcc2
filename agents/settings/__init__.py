"""The settings of each agent, and those that several agents share.  Nothing here imports TensorFlow."""
