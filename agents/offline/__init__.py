"""Agents for recorded episodes, each with its settings: those that imitate them, and those that go beyond them."""
