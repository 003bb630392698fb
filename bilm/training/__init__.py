"""Training of a biLM. `bilm.train` is `run.train`; `train` of this package is bilm-tf's function.

A run is a value, `spec.RunSpec`. `starting` makes it from a `request`, or from a checkpoint that it
continues, `finetuning` from a stored model; `texts` opens and counts the texts, and `auto` has the
recipes that choose options. `run` takes the steps: `training_text` makes batches, read ahead by a
thread, with the negatives of `sampling`; `step` and `optimizer` update the weights with the rate
of `schedule`. Between steps, the functions of `decisions` return what to do, and `run` applies it:
it saves, `report` and `history` record, `signals` stop it. `memory` estimates what a run
needs, `devices` selects GPUs or the CPU, `hosts` connects several processes, `run_folder` has the
files of a run and `settings` what is not an option of the model or of its training.

The names of this package are bilm-tf's, with its signatures: see `compat`.
"""

from bilm.support.imports import lazily

MODULES = {
    "compat.bilm_tf_training": "load_options_latest_checkpoint test train",
    "data.vocabulary": "load_vocab",
    "export.hdf5": "dump_weights",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
