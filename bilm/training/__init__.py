"""Training. `run` describes a training run from top to bottom.

`plan` checks what a run reads and computes its steps, `survey` counts and checks the text,
`training_text` makes batches of the text, `step` and `optimizer` update the weights with the rate
of `schedule`, `checkpoints` saves and restores them, `run_folder` names the files of a run,
`report` and `history` record its progress, `devices` selects GPUs or the CPU, `hosts` connects
several processes, `auto` chooses options by the times of `timing`, and `finetuning` starts from
stored weights. The names below are bilm-tf's, with its signatures.

May import every package except `embedding` and `commands`.
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
