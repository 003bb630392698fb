"""The content of `options.json`, checked key by key: options of a model and of a training run."""

from bilm.support.imports import lazily

MODULES = {
    "options.model_options": "LexiconEncoderOptions ModelOptions",
    "options.run_options": "RunOptions load_model_options load_run_options",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
