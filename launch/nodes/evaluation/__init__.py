"""The evaluator: what it plays, with which policies, and its videos."""
