"""Stored models.

`stored_model` opens a model once as a `StoredModel`, which all other packages receive. `finding`
finds or downloads its files, and `formats` reads them: one class per format. `names` translates
stored names to variables, and `stored_weights` initializes variables from files. `hdf5` reads and
writes HDF5. `checkpoint` reads and writes the checkpoints of training, `run_record` their JSON
files, and `tensor_reader` reads files in TensorFlow's format.
"""

from bilm.support.imports import lazily

MODULES = {
    "storage.hdf5": "attribute numbers open_hdf5 save_hdf5 strings",
    "storage.stored_model": "StoredModel open_model",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
