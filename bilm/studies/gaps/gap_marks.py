"""Marks of gaps in a text: lost words, and lost letters of words."""

import re
from collections.abc import Container, Sequence
from unicodedata import category, normalize

from bilm.data import LOST_WORD
from bilm.errors import DataError

MASK = "[MASK]"
# Dots are lost letters, dashes an unknown number of them, also erased ones: [[..]] or ⟦..⟧
LOST = r"[\[⟦〚]+ *((?:[.‥…] *)+|(?:[-‐-―−] *)+)[\]⟧〛]+"
OTHER = r"[\[\]⟦⟧〚〛]|(?<!\S)_(?!\S)"  # other brackets, and a letter of ___ that was split
BARE = r"[.…‥]{2,}|[…‥]|(?<!\w)\.(?: \.){2,}|[-‐-―−]{3,}|[-‐-―−](?: [-‐-―−]){2,}"  # not in brackets


def pieces(token: str, mask: str = MASK) -> list[str | int]:
    """Return the kept letters of a token, in NFC, and between them the number of lost ones, 0 for
    one or more; an empty list without a gap. A gap is the mask, or in brackets: `ki[..]g` lacks two
    letters, and `k[---]` one or more."""
    if token == mask:
        return ["", 0, ""]
    found: list[str | int] = [*re.split(LOST, normalize("NFC", token))]
    if len(found) == 1:
        return []
    # An ellipsis is three dots.
    found[1::2] = [normalize("NFKC", str(lost)).count(".") for lost in found[1::2]]
    return found


def pattern(token: str, mask: str = MASK) -> re.Pattern[str] | None:
    """Return the pattern of the words, in NFC, that a token with a gap can be; None without one."""
    expression = ""
    for piece in pieces(token, mask):
        if isinstance(piece, str):
            expression += re.escape(piece)
        else:
            expression += f".{{{piece}}}" if piece else ".+"
    return re.compile(expression) if expression else None


def marks(mask: str = MASK) -> re.Pattern[str]:
    """Return the pattern of marks that must not be split. Raises: DataError for an empty mask."""
    if not mask.strip():
        raise DataError(f"the mark is {mask!r}; expected a word, such as {MASK}")
    edge = r"\b" if mask.isalnum() else ""  # not within a word
    spaced = edge + " *".join(map(re.escape, mask)) + edge
    return re.compile(f"(?i:{LOST_WORD})|{LOST}|(?i:{spaced})")


def unread_marks(tokens: Sequence[str], mask: str = MASK, known: Container[str] = ()) -> list[str]:
    """Return the tokens of a sentence that contain or look like a mark, but are not gaps; parts of
    a mark that was split are joined. Known words such as `...` are punctuation."""
    text = " ".join("\n" if pattern(token, mask) else token for token in tokens)
    marked = rf"(?<!\S)\S*?(?:{marks(mask).pattern}|{OTHER}|{BARE})\S*"
    unread = (match[0] for match in re.finditer(marked, text))
    return [token for token in unread if token not in known or not re.fullmatch(BARE, token)]


def has_punctuation(token: str) -> bool:
    """Return whether a token has punctuation besides marks of gaps."""
    rest = marks().sub("", token)
    return any(category(letter)[0] == "P" and letter not in "_[]⟦⟧〚〛" for letter in rest)
