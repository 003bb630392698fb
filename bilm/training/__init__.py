"""Training of a biLM. `bilm.train` is `run.train`; `train` of this package is bilm-tf's function.

A run is a value, `spec.RunSpec`. `starting` makes it from a `request`, which may name a model of
`source`, and from a checkpoint that it continues; `texts` opens and counts the texts, and
`auto` has the recipes that choose options. `run` takes the steps: `training_text` makes batches
with the negatives of `sampling`; `step` and `optimizer` update the weights with the rate of
`schedule`. Between steps, `run` does what the functions of `decisions` return: it saves, `report`
and `history` record, `signals` stop it. The names in this package are bilm-tf's: see `compat`.
"""

from bilm.support.imports import lazily

MODULES = {
    "compat.bilm_tf_training": "load_options_latest_checkpoint test train",
    "data.vocabulary": "load_vocab",
    "export.hdf5": "dump_weights",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
