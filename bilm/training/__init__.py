"""Training: `run` reads from top to bottom what a training run does.

`input` feeds it, `step` and `optimizer` update the weights at the rate of `schedule`, `checkpoints`
and `run_folder` own what is on disk, `devices` where it computes, `hosts` the other processes of a
run, `finetuning` starts from stored weights. The names below are bilm-tf's, with its signatures.
Imports everything but `embedding` and `commands`.
"""

from bilm.exports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "dump_weights": "training.export",
        "load_options_latest_checkpoint": "training.reference",
        "load_vocab": "data.vocabulary",
        "test": "training.reference",
        "train": "training.reference",
    },
)
