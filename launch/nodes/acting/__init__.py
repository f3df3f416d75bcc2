"""Nodes that act: environments, policies, and what they write to replay."""
