"""Names, downloads, archives and the cache of the files of stored models."""
