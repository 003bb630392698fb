"""Marks of gaps: the words that a gap can be, and tokens that only look like gaps."""

from unicodedata import normalize

import pytest

from bilm.data.tokenization import keep_whole, tokenizer
from bilm.studies.gaps.gap_marks import marks, pattern, unread_marks

WORDS = ["", "k", "king", "kiing", "kingg", "ki..g", "kibg", "re\u0301g", "ring"]
FIVE = {"kiing", "kingg", "ki..g"}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ("ki[..]g ki[‥]g ki⟦..⟧g ki[[. .]]g", FIVE),
        ("[.....] […..] [. . . . .]", FIVE),
        ("ki[.]g", {"king", "kibg"}),
        ("k[---] k[—] k[- - -] k〚– –〛 k[−−]", {*WORDS[2:7]}),
        ("[-]g", {"king", "kiing", "kingg", "ki..g", "kibg", "re\u0301g", "ring"}),
        ("[..]", set()),
        ("[....] [.]i[.]g", {"king", "kibg", "ring"}),
        ("r[.]g", {"re\u0301g"}),
        ("[MASK] [---] [— — —]", {*WORDS[1:]}),
    ],
)
def test_gap_matches_words_with_the_letters_that_are_kept(tokens, expected):
    for token in keep_whole(str.split, marks())(tokens):
        gap = pattern(token)
        assert {w for w in WORDS if gap.fullmatch(normalize("NFC", w))} == expected, token


def test_gap_is_no_other_token():
    for token in ("king", "[", "[]", "[.-]", "..", "[a]", "[mask]", "(abc)", "<abc>", "[3]", "ạ"):
        assert pattern(token) is None, token
    assert pattern("[MASK]", "[?]") is None and pattern("[?]", "[?]").fullmatch("king")


@pytest.mark.parametrize(
    ("mask", "text", "expected"),
    [
        ("[MASK]", "a [MASK] , ki[..]g [mask] [MASK]. \u201c[MASK]\u201d", 3),
        ("[MASK]", "<mask> <mask>. ____ her___ {MASK} <extra_id_0> [1] ki[ni]g", 8),
        ("[MASK]", '<gap reason="lost"/> mask the <gap>', 2),
        ("___", "___ ___. the ___-like", 2),
        ("X", "Xerxes saw X X. x.", 2),
        ("[?]", "who [?] is [?]? f(x) a_b _c_ a < b ... -- U.S. . .", 1),
        ("[MASK]", "the … (...) .... ki.. …ος ---", 5),
    ],
)
def test_unread_marks_are_those_that_only_look_like_gaps(mask, text, expected):
    words = keep_whole(str.split, marks(mask))(text)
    unread = unread_marks(words, mask, known={"...", ".", "ki...", "-", "---"})
    assert len(unread) == expected and set(unread) <= set(words)


def test_unread_marks_that_were_split_are_named_as_one():
    words = ["a", "[", "MASK", "]", ",", "b", "<", "mask", ">", "_", "_", "_", "ki[", "..", "]g"]
    assert unread_marks(words) == ["[ MASK ]", "< mask >", "_", "_", "_", "ki[ .. ]g"]
    assert unread_marks(words, "___")[2:] == ["_ _ _", "ki[ .. ]g"]
    words = ["a", ".", ".", ".", "(.", ".", ".)", "-", "-", "-", "b", ".", "."]
    assert unread_marks(words, known=words) == [". . .", "(. . .)", "- - -"]


@pytest.mark.clients
def test_tokenizer_keeps_marks_whole():
    pytest.importorskip("spacy", reason="make test-clients has spaCy")
    text = "Mr. [MASK]'s ki[..]g, (k[---]) <mask>. ⟦..⟧; [— — —]!"
    words = ["Mr.", "[MASK]", "'s", "ki[..]g", ",", "(", "k[---]", ")", "<mask>", ".", "⟦..⟧", ";"]
    assert keep_whole(tokenizer("en"), marks())(text) == [*words, "[— — —]", "!"]
    assert keep_whole(tokenizer("en"), marks("@@"))("ḁ @@. @@") == ["ḁ", "@@", ".", "@@"]
