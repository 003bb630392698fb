"""The content of `options.json`, checked key by key.

`model_options` describes a model, `run_options` a training run and `lexicon_options` the token
encoder of ELMoForManyLangs. `schema` declares and checks keys, `files` reads and writes
`options.json`, and `sizes` counts parameters. Imports `errors` and `support`.
"""

from bilm.support.lazy_imports import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "LexiconEncoderOptions": "options.lexicon_options",
        "ModelOptions": "options.model_options",
        "RunOptions": "options.run_options",
        "load_model_options": "options.files",
        "load_run_options": "options.files",
    },
)
