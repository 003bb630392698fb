"""Text -> words: at blanks, or by the rules that spaCy has for a language."""

from __future__ import annotations

from collections.abc import Callable

from bilm.errors import DataError
from bilm.extras import optional


def tokenizer(language: str | None = None) -> Callable[[str], list[str]]:
    """Return a function from a text to its words.

    Args:
        language: of spaCy's blank pipelines, such as `en`; None splits at blanks.
    Raises: BilmError if spaCy is not installed; DataError if it does not know the language. The
        function raises DataError for a text that spaCy refuses.
    """
    if language is None:
        return str.split
    spacy = optional("spacy", "spacy", "--tokenize")
    try:
        make_doc = spacy.blank(language).make_doc
    except Exception as error:  # each language has its own way to miss a package
        raise DataError(
            f"--tokenize={language}: spaCy has no tokenizer for it ({error})"
        ) from error

    def words(text: str) -> list[str]:
        try:
            return [token.text for token in make_doc(text) if not token.is_space]
        except ValueError as error:
            raise DataError(f"{text[:40]!r}...: spaCy cannot split it ({error})") from error

    return words
