"""Text: one sentence per line."""

from __future__ import annotations

from collections.abc import Iterator

from bilm.data.readers.form import Form, InputFile, Record
from bilm.data.text import read_lines
from bilm.data.tokenization import paragraphs


def read_text(source: InputFile) -> Iterator[Record]:
    """Yield a record per line, also for an empty one; or the sentences of each paragraph."""
    lines = (line for _, line in read_lines(source.path, source.errors))
    for text in paragraphs(lines) if source.wrapped else lines:
        for words in source.split(text):
            yield Record(words)


FORM = Form(
    name="text",
    endings=(),
    help="text, one sentence per line, words separated by blanks; --tokenize splits other text",
    read=read_text,
    options=frozenset({"tokenize"}),
)
