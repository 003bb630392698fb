#!/usr/bin/env python
"""Train a small biLM, evaluate it, export it, and find the neighbours of a word with the export.

The text is the documentation that every Python interpreter includes for help(). All files are
written to --work_dir, which is deleted first if an earlier demo created it.
"""

import re
import shutil
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import running

import bilm
from bilm.data.vocabulary import MARKS
from bilm.options.run_options import load_run_options
from bilm.studies.usages import find_neighbours, words_of_text

WORD = "with"
CONTEXTS = (  # the name of a statement, and a preposition
    "The with statement is used to call a method .",
    "The function is called with two arguments .",
)
N_NEIGHBOURS = 5
MADE_HERE = ".made_by_demo"


def define_flags() -> ArgumentParser:
    flags = running.parser(__doc__)
    flags.add_argument("--work_dir", default="demo_run", help="folder to write (%(default)s)")
    flags.add_argument("--n_steps", type=int, help="training steps (default: n_epochs of tiny)")
    return flags


def main(args: Namespace) -> int | None:
    work_dir = empty_folder(args.work_dir)
    vocab_file, train_file, heldout_file = (
        str(work_dir / name) for name in ("vocab.txt", "train.txt", "heldout.txt")
    )
    run, weight_file = str(work_dir / "run"), str(work_dir / "model" / "weights.hdf5")

    # The text: one tokenized sentence per line. Every tenth is held out.
    sentences = read_sentences()
    heldout = sentences[::10]
    training = [words for i, words in enumerate(sentences) if i % 10]
    write_lines(train_file, map(" ".join, training))
    write_lines(heldout_file, map(" ".join, heldout))
    write_lines(vocab_file, count_words(training))

    vocab = bilm.Vocabulary(vocab_file)
    unigram = unigram_perplexity(vocab, training, heldout)
    print(
        f"{len(training):,} sentences to train on, {len(heldout):,} held out, {vocab.size:,} words"
    )
    print(f"held-out perplexity by the frequencies of words alone: {unigram:.1f}", flush=True)

    # The log shows how the held-out perplexity falls.
    options = load_run_options("tiny")
    result = bilm.train(
        train_file, run, options=options, vocab=vocab_file, heldout=heldout_file,
        n_steps=args.n_steps,
    )  # fmt: skip
    if not result.finished:
        return running.INTERRUPTED
    print(f"held-out perplexity: unigram {unigram:.1f}, biLM {result.heldout.mean:.1f}")

    # The export has the files of a published model: options.json and HDF5 weights.
    weight_file, options_file = bilm.dump_weights(run, weight_file)
    print(f"exported to {weight_file} and {options_file}")

    embedder = bilm.ElmoEmbedder(options_file, weight_file)
    for context in map(str.split, CONTEXTS):
        print(f"\nwords used most like '{WORD}' in: {in_context(context, context.index(WORD))}")
        near = find_neighbours(
            *words_of_text(embedder, [context, *sentences]),
            is_chosen=lambda usage: usage.line == 1 and usage.word == WORD,
            n=N_NEIGHBOURS,
            each_word_once=True,
            is_left_out=lambda usage: usage.line == 1 or usage.word.lower() == WORD,
        )
        for cosine, word, _, place, sentence in near:
            print(f"  {cosine:.2f}  {word:<12} {in_context(sentence.split(' '), place)}")


def empty_folder(path: str) -> Path:
    """Create a folder. Replace one that an earlier demo created, and refuse any other."""
    folder = Path(path)
    if folder.exists():
        if any(folder.iterdir()) and not (folder / MADE_HERE).exists():
            raise bilm.BilmError(
                f"{folder}: contains files that the demo did not write; choose another folder"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MADE_HERE).touch()
    return folder


def read_sentences() -> list[list[str]]:
    """Return the distinct sentences of the documentation, tokenized."""
    sentences = []
    for text in topics.values():
        for paragraph in re.split(r"\n\s*\n", text):
            prose = re.sub(r"[\"*`]", "", " ".join(paragraph.split()))  # without markup
            # Other endings are headings, grammar rules or code.
            if prose.endswith((".", ":")) and "::=" not in prose:
                sentences += re.split(r"(?<=[.:]) (?=[A-Z])", prose)
    tokenized = (re.findall(r"\w+(?:[.'’-]\w+)*|[^\w\s]", sentence) for sentence in sentences)
    return [list(words) for words in dict.fromkeys(map(tuple, tokenized)) if len(words) > 3]


def count_words(sentences: list[list[str]]) -> list[str]:
    """Return the marks, then the words that occur at least twice, by descending frequency."""
    counts = Counter(word for words in sentences for word in words)
    return [*MARKS, *(word for word, n in counts.most_common() if n > 1)]


def write_lines(path: str, lines) -> None:
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def unigram_perplexity(vocab: bilm.Vocabulary, training: list, heldout: list) -> float:
    """Return the perplexity of word frequencies alone, over the predictions of the biLM."""

    def predictions(sentences):  # every word or <UNK>, and the end of every sentence
        return np.concatenate([vocab.encode(words, split=False)[1:] for words in sentences])

    frequencies = np.bincount(predictions(training)) / len(predictions(training))
    return float(np.exp(-np.log(frequencies[predictions(heldout)]).mean()))


def in_context(words: list[str], i: int) -> str:
    return " ".join([*words[max(0, i - 4) : i], f"[{words[i]}]", *words[i + 1 : i + 5]])


if __name__ == "__main__":
    running.run(main, define_flags())
