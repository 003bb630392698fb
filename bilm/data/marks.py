"""The words of a vocabulary file that are marks. Imports nothing."""

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"  # begin and end of a sentence, and an unknown word
MARKS = (BOS, EOS, UNK)
NOT_A_WORD = "!!!MAXTERMID"  # a line of some vocabulary files that has no id
