"""Suites: agents on published environments beside published scores, with results that are kept."""
