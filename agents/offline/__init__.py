"""Agents for recorded episodes: those that imitate them, and those that go beyond them."""
