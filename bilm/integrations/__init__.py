"""Stored models as objects of other libraries, each of which is an extra of this package."""
