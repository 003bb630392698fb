"""Finds the files of a model that a user names: see `locate`."""
