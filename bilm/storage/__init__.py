"""Models on disk.

`locate`, `download` and `web` find the files, `hdf5` reads and writes them, `names` maps stored
names to variables, `stored_weights` and `load` build a biLM from them, `export_id` tells exports
apart. `checkpoint_folder` keeps checkpoints, `checkpoint` reads a run's model. Imports what is
below it on the ladder of `docs/architecture.md`.
"""
