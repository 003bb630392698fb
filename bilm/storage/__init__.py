"""Models on disk.

`locate` finds the files that stand for a model: `registry` knows the names, `download`, `web` and
`hub` fetch, `archive` unpacks and `cache` keeps. `hdf5` reads and writes them, `names` maps stored
names to variables, `stored_weights` and `load` build a biLM from them, `export_id` tells exports
apart. `checkpoint_folder` keeps checkpoints, `checkpoint` reads a run's model. Imports what is
below it on the ladder of `docs/architecture.md`.
"""
