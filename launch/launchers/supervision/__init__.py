"""Supervision: starting, restarting and ending nodes, and detecting those that hang."""
