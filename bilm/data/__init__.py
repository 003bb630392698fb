"""Text -> windows of ids, with NumPy only.

`readers` reads input files of any form, `text` and `shards` read text; `signs` finds text that is
not tokenized, which `tokenization` splits. `alphabets`, `vocabulary` and `model_ids` turn words
into ids, `stream` and `dataset` text into windows of training and evaluation, whose distinct tokens
are in `windows`. `survey` counts a training text, `vocabulary_builder` makes vocabularies.
"""

from bilm.support.imports import lazily

MODULES = {
    "data.dataset": "BidirectionalLMDataset LMDataset",
    "data.marks": "BOS EOS LOST_WORD UNK",
    "data.model_ids": "Batcher TokenBatcher",
    "data.readers": "Corpus InputFile Reading Record TABLES form_of",
    "data.readers.tables": "table_rows text_of words_of",
    "data.shards": "count_tokens resolve_shards sentence_digest",
    "data.signs": "TextSigns",
    "data.survey": "check_training_text",
    "data.text": "matching_files read_lines",
    "data.tokenization": "checked_sentence checked_sentences tokenizer",
    "data.vocabulary": "UnicodeCharsVocabulary Vocabulary",
    "errors": "InvalidNumberOfCharacters",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
