"""Words that are marks, in vocabulary files and in texts. Imports nothing."""

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"  # begin and end of a sentence, and an unknown word
MARKS = (BOS, EOS, UNK)
NOT_A_WORD = "!!!MAXTERMID"  # a line of some vocabulary files that has no id
# Pattern of marks of lost words in other programs and EpiDoc, in any case
LOST_WORD = r"[\[<{] *(?:mask|gap|blank|lacuna|extra_id_\d+)(?: *[\]>}]|\b[^<>]{0,99}>)|_{2,}"
