"""Signs that a text is not tokenized sentences: one warning each, and none for other texts."""

import pytest

from bilm.data.readers import Corpora
from bilm.data.shards import Shards
from bilm.data.signs import SIGNS, TextSigns

RAW = "Das Haus ist, wie er sagte, groß. Wer weiß? Niemand!"
TOKENIZED = "Das Haus ist , wie Dr. M. sagte , groß . wer weiß ?"
JOINED = "She rose . He sat ."
IOB = "-DOCSTART- -X- O O", "Ann NNP I-NP B-PER", "sings VBZ I-VP O", ". . O O"
CONLLU = "# sent_id = 1", "1 Ann Ann PROPN _ _ 2 nsubj _ _", "2 sings sing VERB _ _ 0 root _ _"
FRENCH = "Le DET:ART le", "chat NOM chat", "dort VER:pres dormir", ". SENT ."
CHINESE = "他 r", "爱 v", "北京 ns", "。 w"
THAI = "ประเทศไทย มี ชื่อ อย่าง เป็น ทางการ ว่า ราชอาณาจักร ไทย เป็น รัฐ"
FRAGMENTS = {
    "end": "are the marks", "escape": "escapes of Moses", "long": "very long words",
    "attached": "contain punctuation", "columns": "are columns", "single": "only one word",
    "joined": "have a capitalized word after",
}  # fmt: skip


def signs_in(caplog, name="text"):
    """The names of the signs in logged warnings."""
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(line.startswith(f"{name}: ") and "such as '" in line for line in lines)
    found = [sign for line in lines for sign, part in FRAGMENTS.items() if part in line]
    assert len(found) == len(lines)
    return found


def examine(*lines, known=(), n=10):
    signs = TextSigns("text", known)
    for line in lines * n:
        signs.add(line.split())
    signs.warn()
    signs.warn()


@pytest.mark.parametrize(
    ("sign", "lines"),
    [
        *(
            ("attached", [line])
            for line in (RAW, RAW[:13], "Дом, который он видел.", "البيت، كبير؟")
        ),
        *(("attached", [line]) for line in ('"Ja" sagt er .', "„Haus“ sagt er .", "an end.")),
        *(
            ("columns", lines)
            for lines in (IOB, CONLLU, FRENCH, ("他 r", "爱 v", "北京 ns", "。 w"))
        ),
        *(("single", lines) for lines in (("She", "rose", "."), ("我", "。"))),
        *(
            ("long", [line])
            for line in ("他说，这本书很好看。", THAI.replace(" ", ""), "MKTAY" * 9)
        ),
        *(("escape", [line]) for line in ("he &apos;s here", "well @-@ known", "a &#124; b")),
        *(("joined", lines) for lines in ([JOINED], [JOINED, "she sat ."], ["Wo ? Da ! ..."])),
        *(("end", [line]) for line in ("<S> a b </S>", "<bos> a b <eos> c d", "a b </S>")),
    ],
)
def test_each_sign_gives_one_warning(sign, lines, caplog):
    examine(*lines)
    assert signs_in(caplog) == [sign]


@pytest.mark.parametrize(
    "lines",
    [
        *(
            [TOKENIZED],
            [JOINED, "She sat .", "He ? she !"],
            ["no marks at all"],
            ["他 说 ， 好 。", "这 本 书"],
            [THAI],
            [", ,"],
        ),
        *([":) :: http://a.b/c <unk> [MASK] e.g. U.S."], ["the old house sees a dog ."]),
        ("O", "what a", "day is", "this , my", "I", "sing"),  # a poem
        ["what I see is this", "what A wants is that"],
        ["a word " * 30, "another word " * 15],
    ],
)
def test_other_texts_give_no_warning(lines, caplog):
    examine(*lines)
    assert signs_in(caplog) == []


def test_few_words_and_words_of_the_model_give_no_warning(caplog):
    examine(RAW, *[TOKENIZED] * 9)
    examine("an end.", n=4)
    examine(RAW, "he &apos;s", known={*RAW.split(), "&apos;s"})
    assert signs_in(caplog) == []


def test_signs_are_counted_over_all_files_and_once(tmp_path, golden_data, caplog):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("item,word\n1,She\n1,rose\n1,there\n")
        (tmp_path / name).write_text(f"{RAW}\n" * 100, encoding="utf-8")
    corpus = Corpora(tmp_path / "*.csv", column="word")
    assert len(list(corpus)) == len(list(corpus)) == 6
    assert signs_in(caplog, tmp_path / "*.csv") == ["single"]
    assert "6 of the first 6 sentences" in caplog.text and SIGNS["single"].remedy in caplog.text
    caplog.clear()
    Shards(golden_data.rglob("h.txt")).examine()
    Shards([tmp_path / "a", tmp_path / "b"]).examine()
    assert signs_in(caplog, f"{tmp_path}/a and 1 more") == ["attached"]
