"""Stored models: `stored_model` opens one as a `StoredModel`, which other packages receive;
`finding` finds or downloads its files, and `formats` reads them."""

from bilm.support.imports import lazily

MODULES = {
    "storage.hdf5": "attribute numbers open_hdf5 save_hdf5 strings",
    "storage.stored_model": "StoredModel open_model",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
