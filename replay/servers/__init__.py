"""Replay servers: tables, their start, checkpoints, and the handle that finds them."""
