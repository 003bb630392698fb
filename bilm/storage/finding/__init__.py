"""Finds the files of a model that a user names; `locate` is the entry."""
