"""Starting a run, following it, and attaching to one that another process runs."""
