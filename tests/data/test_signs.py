"""Signs that a text is not tokenized sentences: one warning each, and none for other texts."""

from unicodedata import normalize

import pytest

from bilm.data.profile import SIGNS
from bilm.data.readers import Reading
from bilm.data.shards import Shards
from bilm.data.signs import TextSigns
from bilm.embedding.corpus_shares import Corpora

RAW = "Das Haus ist, wie er sagte, groß. Wer weiß? Niemand!"
TOKENIZED = "Das Haus ist , wie Dr. M. sagte , groß . wer weiß ?"
JOINED = "She rose . He sat ."
IOB = "-DOCSTART- -X- O O", "Ann NNP I-NP B-PER", "sings VBZ I-VP O", ". . O O"
CONLLU = "# sent_id = 1", "1 Ann Ann PROPN _ _ 2 nsubj _ _", "2 sings sing VERB _ _ 0 root _ _"
FRENCH = "Le DET:ART le", "chat NOM chat", "dort VER:pres dormir", ". SENT ."
CHINESE = "他 r", "爱 v", "北京 ns", "。 w"
THAI = "ประเทศไทย มี ชื่อ อย่าง เป็น ทางการ ว่า ราชอาณาจักร ไทย เป็น รัฐ"
RECORDS = {
    "attached": [RAW, RAW[:13], "Дом, который он видел.", "البيت، كبير؟", "an end.",
                 '"Ja" sagt er .', "„Haus“ sagt er ."],
    "long": ["他说，这本书很好看。", THAI.replace(" ", ""), "MKTAY" * 9],
    "escape": ["he &apos;s here", "well @-@ known", "a &#124; b", "one.\\nTwo a", "a \\n\\n b"],
    "joint": ["\ufeffa b"], "conflict": [">>>>>>> b2"],
    "end": ["<S> a b </S>", "<bos> a b <eos> c d", "a b </S>"],
    "foreign": ["<s> a b </s>", "[CLS] a b [SEP]", "a b <PAD>", "a <unk> b", "<|endoftext|> a"],
    "invisible": ["a ch\u00adair"], "space": ["the old\u200bman"],
    "encoding": ["nâ€™t a b", "a cafÃ© .", "Ã¼ber a"],
    "subword": ["un ￭believ able", "she￨C rose￨L", "un@@ believ@@ able",
                "un ##believ ##able", "▁un believ able", "The Ġold Ġcat Ġis"],
    "markup": ["<p>A cat .</p>", "a cat<br />", 'a <doc id="1"', "00:01.000 --> 00:02.500",
               "== History ==", "the [[old cat]] {{lost}}"],
    "gap": ["a [MASK]", "a <mask>", "the ___", "a ki[..]g", "the c[a]t", "[---] c", "a ......."],
    "hyphens": ["the old hou-", "das alte Zim¬", "the old hou="],
    "tagged": ["The/DT cat/NN ./.", "Die_ART Katze_NN ._$.", "我/r 爱/v 你/r", "a|a|DT cat|cat|NN"],
    "missing": ["_ _ _", "the _ _"], "returns": ["a b\rc d\re f", "a b\u2028c d"],
    "tabs": ["7\ta cat sleeps", "eng\ta cat", "a cat\tune chatte\t7", "a cat ||| un chat"],
}  # fmt: skip
ORDINARY = [
    ["he / she and/or they , 5 km/h on 1/2/20"], ["def my_f ( a_b , C_D ) : x_y <b and c> _"],
    ["## 1 . Heading", "##Heading and text", *["and a text with words ."] * 9], ["> a quote"],
    ["Hà_Nội là thủ_đô của Việt_Nam ."], ["u l- Ġenna , Ġorġ", *["il- belt , kollha"] * 9],
    ["a\tcat\tsleeps"], ["3 cats", "2 dogs"], ["The cat", "The dog"], ["a --> b", "x < y > z"],
    [TOKENIZED], [JOINED, "She sat .", "He ? she !"], ["no marks at all"], [THAI], [", ,"],
    ["他 说 ， 好 。", "这 本 书"], [":) :: http://a.b/c <UNK> :[ e.g. U.S."],
    ["O", "what a", "day is", "this , my", "I", "sing"],  # a poem
    ["what I see is this", "what A wants is that"], ["a word " * 30, "another word " * 15],
]  # fmt: skip


def examine(*lines, n=10, **arguments):
    """The signs that are reported for the lines, each n times."""
    signs = TextSigns("text", **arguments)
    for line in lines * n:
        signs.add(signs.add_line(line).split())
    signs.warn()
    return signs.reported


@pytest.mark.parametrize(
    ("sign", "lines"),
    [
        *((sign, [line]) for sign, lines in RECORDS.items() for line in lines),
        *(("columns", lines) for lines in (IOB, CONLLU, FRENCH, CHINESE)),
        *(("single", lines) for lines in (("She", "rose", "."), ("我", "。"))),
        *(("joined", lines) for lines in ([JOINED], [JOINED, "she sat ."], ["Wo ? Da ! ..."])),
        ("wrapped", ["was there . The old", *["man went home to the river with"] * 3]),
        ("alike", [f"{i}. a cat" for i in range(9)]),
        ("fasta", [">p1 x", "MKV"]),
        ("pointer", ["version https://git-lfs.github.com/spec/v1", "oid a", "size 9"]),
        ("fasta", [">p", "acgt" * 9, "AC"]),
    ],
)
def test_each_sign_gives_one_warning(sign, lines, caplog):
    assert examine(*lines) == {sign}
    (record,) = caplog.records
    assert record.getMessage().startswith("text: ") and ", such as '" in record.getMessage()


@pytest.mark.parametrize("lines", ORDINARY)
def test_other_texts_give_no_warning(lines):
    assert examine(*lines) == set()


def test_whitespace_is_not_a_word(caplog):
    signs = TextSigns("text")
    signs.add(["The", "\n", "old", " "])
    signs.warn()
    signs.warn()
    assert caplog.text.count("2 of the first 4 words are whitespace, such as '\\n', ' '") == 1


def test_few_words_and_words_of_the_model_give_no_warning():
    assert examine(RAW, *[TOKENIZED] * 9) == set()
    assert examine("an end.", n=4) == set()
    assert examine(RAW, "he &apos;s", known={*RAW.split(), "he", "&apos;s"}) == set()


@pytest.mark.parametrize(("form", "other"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_words_in_another_normal_form_than_the_vocabulary(form, other, caplog):
    known = {normalize(form, word) for word in ("für", "Häuser")} | {normalize(other, "für")}
    for vocabulary in ({normalize(other, "Häuser")}, known, ()):
        examine(normalize(other, "für die Häuser"), vocabulary={*vocabulary, "die"})
    messages = [record.getMessage() for record in caplog.records]
    (message,) = [text for text in messages if "normal form" in text]
    assert "10 of the first 30 words" in message and f"Unicode's normal form {form}" in message


def test_signs_are_counted_over_all_files_and_once(tmp_path, golden_data, caplog):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("item,word\n1,She\n1,rose\n1,there\n")
        (tmp_path / name).write_text(f"{RAW}\n" * 100, encoding="utf-8")
    corpus = Corpora(tmp_path / "*.csv", Reading(column="word"))
    assert len(list(corpus)) == len(list(corpus)) == 6
    (record,) = caplog.records
    assert "*.csv: 6 of the first 6 sentences have only one word" in record.getMessage()
    assert SIGNS["single"].remedy in record.getMessage()
    caplog.clear()
    Shards(golden_data.rglob("h.txt")).examine()
    Shards([tmp_path / "a", tmp_path / "b"]).examine()
    (record,) = caplog.records
    assert f"{tmp_path}/a: 800 of the first 2,000 words" in record.getMessage()
