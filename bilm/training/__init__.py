"""Training of a biLM. `run` describes a training run from top to bottom.

Before the first step: `settings` and `plan` determine what a run reads and how many steps it takes,
`survey` counts and checks the text, `memory` estimates what the run needs, `auto` chooses options,
`finetuning` starts from stored weights, `devices` selects GPUs or the CPU, and `hosts` connects
several processes. Each step: `training_text` makes batches, `sampling` draws negatives, `step` and
`optimizer` update the weights with the rate of `schedule`. Between steps: `callbacks` saves with
`checkpoints` and measures held-out text with `evaluation`, `report` and `history` record progress,
`signals` stops the run. All files of a run are in its `run_folder`, also its last `measurement`.

The names of this package are bilm-tf's, with its signatures: see `compat`.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "dump_weights": "export.hdf5",
        "load_options_latest_checkpoint": "compat.bilm_tf_training",
        "load_vocab": "data.vocabulary",
        "test": "compat.bilm_tf_training",
        "train": "compat.bilm_tf_training",
    },
)
