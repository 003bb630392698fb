"""Finds the files of a model that a user names.

`locate` finds a model by paths, URL or name; `registry` lists the names; `download`, `web`,
`hub` and `object_folder` download files; `archive` unpacks them; `cache` stores them. Imports
`support`, `options`, `errors` and `storage.formats`.
"""
