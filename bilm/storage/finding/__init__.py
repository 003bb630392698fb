"""Finds the files of a model that a user names.

`locate` finds a model by paths, URL or name; `registry` lists the published ones; `download`
downloads files; `archive` unpacks them; `cache` stores them.
"""
