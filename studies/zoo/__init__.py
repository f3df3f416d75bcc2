"""Trained policies to take, and to offer to others."""
