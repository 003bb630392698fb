"""Text -> windows of ids, with NumPy only; `readers` reads input files of any form."""

from bilm.support.imports import lazily

MODULES = {
    "data.dataset": "BidirectionalLMDataset LMDataset",
    "data.marks": "BOS EOS LOST_WORD UNK",
    "data.model_ids": "Batcher TokenBatcher",
    "data.profile": "Profile TextSigns",
    "data.readers": "Corpus InputFile Reading Record TABLES form_of",
    "data.readers.tables": "table_rows text_of words_of",
    "data.shards": "count_tokens resolve_shards sentence_digest",
    "data.survey": "check_training_text",
    "data.text": "matching_files read_lines",
    "data.tokenization": "checked_sentence checked_sentences tokenizer",
    "data.vocabulary": "UnicodeCharsVocabulary Vocabulary",
    "errors": "InvalidNumberOfCharacters",
}
__getattr__, __dir__, __all__ = lazily(__name__, MODULES)
