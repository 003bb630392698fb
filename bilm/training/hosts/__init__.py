"""Training by several worker processes."""
