"""Finds the files of a model that a user names, in the cache or by downloading them."""
