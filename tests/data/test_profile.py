"""The profile of a text: its numbers, signs that it is not tokenized sentences, differences from a
model's text, and the labelled texts."""

import json
import sys
from pathlib import Path
from unicodedata import normalize

import pytest

from bilm.data.profile import SAMPLE_WORDS, SIGNS, Profile, TextSigns
from bilm.data.readers import Reading
from bilm.data.shards import Shards
from bilm.embedding.corpus import Corpora

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import texts

SENTENCES = [line.split() for line in ["The old cat sleeps , and 2 dogs run .", "Él ran ."] * 10]


def test_shares_of_words_survive_json():
    profile = Profile.of(SENTENCES)
    shares = {"separate": 3, "digits": 1, "capitalized": 2, "accents": 1, "Latin": 9}
    for name, n in shares.items():
        assert profile.share(name) == n / 13
    stored = Profile.from_record(json.loads(json.dumps(profile._asdict())))
    assert stored == profile._replace(examples={})
    assert profile.table()["10 of the first 130 words contain digits, such as '2'"] == "7.7 %"
    once = Profile.of([["a", "2"]]).table()
    assert once["2 of the first 2 words occur once, such as 'a', '2'"] == "100 %"


@pytest.mark.parametrize("record", [None, [], {}, {"counts": {"x": "y"}}, {"counts": {}}])
def test_a_damaged_record_is_no_profile(record):
    assert Profile.from_record(record) is None


def test_differences_name_shares_and_words():
    model = Profile.of(SENTENCES)
    words = {word for sentence in SENTENCES for word in sentence}
    upper = [[word.upper() for word in sentence] for sentence in SENTENCES]
    found = Profile.of(upper, vocabulary=words).warnings(model)
    assert found.keys() == {"unknown", "model"}
    assert found["unknown"].startswith(
        "90 of the first 130 words are not in the vocabulary (69 %, 0 % in the text of the model), "
    )
    assert "90 of the first 130 words are in capitals (69 %, 0 %" in found["model"]
    assert Profile.of(SENTENCES, vocabulary=words).warnings(model) == {}
    assert Profile.of(upper[:2], vocabulary=words).warnings(model) == {}  # too few words
    long = Profile.of([words * 3 for words in SENTENCES])
    assert "19.5 words of a sentence, 6.5 in the text of the model" in long.warnings(model)["model"]
    assert model.warnings(long) == {}  # short sentences
    plain = Profile.of(SENTENCES * 30)
    rare = Profile.of([*SENTENCES * 30, *[["Mr.", *SENTENCES[0]]] * 40])
    assert rare.warnings(plain)["model"].startswith("40 of the first 4,340 words begin or end with")
    assert plain.warnings(rare) == {}  # its words may be of another subject


def test_parts_of_a_word_are_found_by_the_vocabulary_or_by_the_text():
    parts = [["the", "uni-", "versity"], ["the", "uni", "versity"]]
    assert Profile.of(parts, vocabulary={"the", "university"}).counts["split"] == 2
    assert Profile.of([*parts[1:], *[["the", "university"]] * 2]).counts["split"] == 1
    assert "split" not in Profile.of([["a", "way"], ["away", "-", "way"]] * 2).counts


def test_sentences_without_a_mark_and_frequent_unknown_words_differ_from_a_model():
    model = Profile.of(SENTENCES)
    words = {word for sentence in SENTENCES for word in sentence}
    cut = [part for words in SENTENCES for part in (words[:2], words[2:])]
    assert "end without a mark (" in Profile.of(cut * 2, vocabulary=words).warnings(model)["model"]
    counts = {name: n for name, n in model.counts.items() if name != "open"}
    assert Profile.of(cut * 2, vocabulary=words).warnings(Profile(model.totals, counts)) == {}
    gaps = [["_" if word == "cat" else word for word in words] for words in SENTENCES * 2]
    found = Profile.of(gaps, vocabulary=words).warnings(model)
    assert found.keys() == {"frequent"} and "'_'" in found["frequent"]


def test_faulty_texts_are_found_and_clean_ones_are_not():
    found = [bool(texts.warnings_of(content, model)) for *_, content, model in texts.faulty_texts()]
    assert len(found) >= 300 and sum(found) >= 0.93 * len(found)
    clean = texts.clean_texts()
    assert len(clean) >= 50
    assert not {name for name, text in clean.items() if texts.warnings_of(text.encode())}


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ("zero width: km", "replace it with a blank"),
        ("JSON: en", "end with .jsonl"),
        ("CSV: en", "end with .csv"),
        ("marks: ar", "invisible characters"),
        ("FASTA: letters", "end with .fasta"),
        ("CoNLL: en", "end with .conllu"),
        ("BPE: en", "before it was split"),
        ("cp1251: ru", "in its own encoding"),
        ("letters and |: en", "join the letters"),
        ("letters and @: en", "join the letters"),
        ("Python lists: en", "end with .jsonl"),
    ],
)
def test_the_remedy_is_right_for_the_fault(fault, remedy):
    (content,) = [content for _, name, content, _ in texts.faulty_texts() if name == fault]
    assert any(remedy in warning for warning in texts.warnings_of(content))


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
                "▁un believ able"],
    "glued": ["the end .How is it"], "symbols": ["mh=nin a)/eide qea\\"],
    "doubled": ["a-a goes-go ."],
    "pieces": ["un ##believ ##able", "The Ġold Ġcat Ġis"],
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
    ["šum-ma a-wi-lum a-wi-lam e₂-a-ni mu-na-du₃"], ["l' amp de .NET és il·lusió , .5 o més"],
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
        ("empty", ["a good film", "NaN"]),
        ("alike", [f"FAEM0_SI{i} a cat" for i in range(9)]),
        ("alike", [f"{letter} cat utt-{i}" for i, letter in enumerate("abcdefgh")]),
        ("tabs", ["cat\t\t\tNN\tSb"]),
        ("entity", ["he smiled & amp ; left"]),
    ],
)
def test_each_sign_gives_one_warning(sign, lines, caplog):
    assert examine(*lines) == {sign}
    (record,) = caplog.records
    assert record.getMessage().startswith("text: ") and ", such as '" in record.getMessage()


@pytest.mark.parametrize("lines", ORDINARY)
def test_other_texts_give_no_warning(lines):
    assert examine(*lines) == set()


def test_lines_of_a_script_without_blanks_that_are_split_are_not_single_words():
    signs = TextSigns("text")
    for _ in range(10):
        signs.add(list(signs.add_line("这本书很好看。")))
    signs.warn()
    assert signs.reported == set()


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


def test_only_the_first_words_of_a_long_sentence_are_examined():
    signs = TextSigns("genome")
    signs.add(list("ACGT") * SAMPLE_WORDS)
    assert signs.done and signs.profile().totals["words"] == SAMPLE_WORDS


def test_difference_of_what_the_text_lacks_has_no_examples():
    closed, unmarked = (Profile.of([["They", "left", end]] * 40) for end in (".", "early"))
    (warning,) = closed.warnings(unmarked).values()
    assert "end without a mark (0 %, 100 % in the text of the model); 40 of" in warning
