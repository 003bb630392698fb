"""The content of `options.json`, checked key by key.

`model_options` describes a model and counts its parameters, `run_options` describes a training run
and reads the file, and `schema` declares and checks keys.
"""

from bilm.support.imports import lazily

MODULES = {
    "options.model_options": "LexiconEncoderOptions ModelOptions",
    "options.run_options": "RunOptions load_model_options load_run_options",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
