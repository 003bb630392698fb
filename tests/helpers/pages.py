"""Blocks of code in Markdown pages."""

import re
from collections.abc import Iterator
from typing import Any


def blocks(language: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the content of each block, without the indentation of lists.

    Args:
        language: regular expression of the word behind the opening fence.
    """
    block = rf"^( *)```(?:{language})\n(.*?)^\1```"
    for found in re.finditer(block, text, flags=re.DOTALL | re.MULTILINE):
        code = re.sub(f"^{found[1]}", "", found[2], flags=re.MULTILINE)
        yield text.count("\n", 0, found.start(2)), code


def run_blocks(text: str, page: object) -> dict[str, Any]:
    """Run the Python blocks of a page one after the other; return what they define."""
    names: dict[str, Any] = {}
    for line, code in blocks("python", text):
        exec(compile("\n" * line + code, str(page), "exec"), names)
    return names
