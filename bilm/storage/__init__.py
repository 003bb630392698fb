"""Models on disk.

`locate` and `download` find the files, `hdf5` reads and writes them, `names` maps stored names to
variables, `load` builds a biLM from them, `checkpoint` reads a run's folder and `export` writes
HDF5 from it. Imports errors, files, schema, options, data, layers and language_model.
"""
