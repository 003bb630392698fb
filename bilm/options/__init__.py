"""The content of `options.json`, checked key by key.

`model_options` describes a model and counts its parameters, `run_options` describes a training run
and reads the file, and `schema` declares and checks keys.
"""

from bilm.support.imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "LexiconEncoderOptions": "options.model_options",
        "ModelOptions": "options.model_options",
        "RunOptions": "options.run_options",
        "load_model_options": "options.run_options",
        "load_run_options": "options.run_options",
    },
)
