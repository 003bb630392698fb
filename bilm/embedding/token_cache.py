"""Words -> their context-free vectors, each computed once and kept while it is in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

import keras
import numpy as np
from keras import ops

from bilm.data.alphabet import alphabet_of
from bilm.data.batcher import shifted
from bilm.data.characters import BOS, EOS
from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.data.windows import batches, needed_characters
from bilm.errors import OptionsError
from bilm.files import expanded, keep_inputs, replacing
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.options import ModelOptions
from bilm.storage.formats.checkpoint import VOCABULARY
from bilm.storage.formats.known import model_files
from bilm.storage.hdf5 import NewHDF5
from bilm.storage.load import load_bilm
from bilm.storage.locate import resolve

ENCODER_CHARACTERS = 1 << 14  # what the character CNN reads at a time
TABLE_WORDS = 1 << 13  # rows of a word table written at a time


def find_vocabulary(
    options: ModelOptions, options_file: Path, given: str | Path | None
) -> Path | None:
    """Return the vocabulary of a model that reads words, or None: see `ElmoEmbedder`."""
    if not options.reads_words:
        return None
    beside = options_file.with_name(VOCABULARY)
    found = given or (beside if beside.is_file() else None)
    return found and Path(found).absolute()


class WordVectors:
    """Words -> what the encoder of a stored biLM makes of them.

    Args:
        model: as `load_bilm` gives it.
        vocab_file: one word a line, for a model that reads words; others spell them.
    Raises: OptionsError if the vocabulary is needed; DataError if it is not the model's.
    """

    def __init__(self, model: BiLM, vocab_file: str | Path | None = None):
        self.model, self._alphabet = model, alphabet_of(model.options)
        if self._alphabet is None:
            if vocab_file is None:
                raise OptionsError(
                    "this model reads words, not characters; give its words (--vocab, vocab_file)"
                )
            self._vocab = vocabulary_of(vocab_file, model.options, model.n_tokens, (BOS, EOS))
        else:
            self._widest = max((width for width, _ in model.encoder.filters), default=0)
            self._encode = compiled(model.encoder, [keras.KerasTensor((None, None), "int32")])

    @property
    def marks(self) -> tuple[str, str]:
        """The words that stand for the marks of a sentence."""
        return (BOS, EOS) if self._alphabet is None else (self._alphabet.begin, self._alphabet.end)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, float32 (n, P)."""
        if self._alphabet is None:
            ids = shifted(self._vocab.known_ids(words))
            return ops.convert_to_numpy(self.model.encoder(ids))
        vectors = np.empty((len(words), self.model.options.lstm.projection_dim), np.float32)
        spelled = self._alphabet(words)  # n, C
        lengths = self._alphabet.lengths(words, spelled)
        lengths = needed_characters(lengths, self._widest, self._alphabet.width)
        for rows, n_padded in batches(lengths, ENCODER_CHARACTERS):
            # The last word again, up to a number of rows that has come before.
            ids = spelled[np.pad(rows, (0, n_padded - len(rows)), "edge"), : lengths[rows[0]]]
            encoded = self._encode(ops.convert_to_tensor(shifted(ids)))
            vectors[rows] = ops.convert_to_numpy(encoded)[: len(rows)]
        return vectors


class TokenCache:
    """The vectors of the words used last; any number of threads may share it.

    Args:
        size: how many words are kept at most; 0 keeps none. A word takes 4 bytes a feature.
        encode: gives the vectors of words, float32 (n, P), n being 0 too.
    """

    def __init__(self, size: int, encode: Callable[[Sequence[str]], np.ndarray]):
        self.size, self._encode = size, encode
        self._lock = Lock()  # never held while words are encoded, which takes long
        self.clear()

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of distinct words, float32 (n, P)."""
        with self._lock:
            places = np.array([self._places.get(word, -1) for word in words])
            missing, found = np.flatnonzero(places < 0), np.flatnonzero(places >= 0)
            known = self._rows[places[found]] if len(found) else None
            for i in found:
                self._places.move_to_end(words[i])
        new = self._encode([words[i] for i in missing])
        vectors = np.empty((len(words), new.shape[1]), np.float32)
        vectors[missing] = new
        if known is not None:
            vectors[found] = known
        with self._lock:
            # Another thread may have encoded some of the same words meanwhile.
            missing = [i for i in missing if words[i] not in self._places]
            kept = missing[-self.size :] if self.size else []
            if kept:
                self._keep([words[i] for i in kept], vectors[kept])
        return vectors

    def __len__(self) -> int:
        return len(self._places)

    def clear(self) -> None:
        """Forget every word."""
        with self._lock:
            self._places: OrderedDict[str, int] = OrderedDict()  # the first was used longest ago
            self._rows = None

    def _keep(self, words: Sequence[str], vectors: np.ndarray) -> None:
        """Take words in, in the places of those used longest ago once there are too many."""
        n_before = len(self._places)
        n_out = max(n_before + len(words) - self.size, 0)
        n_after = n_before + len(words) - n_out
        if self._rows is None or n_after > len(self._rows):  # double: rows are copied seldom
            rows = np.empty((min(2 * n_after, self.size), vectors.shape[1]), np.float32)
            if n_before:
                rows[:n_before] = self._rows[:n_before]
            self._rows = rows
        places = [self._places.popitem(last=False)[1] for _ in range(n_out)]
        places += range(n_before, n_after)
        self._rows[places] = vectors
        self._places.update(zip(words, places, strict=True))


def dump_token_embeddings(
    vocab_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path | None,
    outfile: str | Path,
) -> None:
    """Write the context-free vectors of a vocabulary, which token input then reads.

    The HDF5 file holds `embedding` float32 (V, P), row i being the vocabulary's word i. It serves
    `BidirectionalLanguageModel(use_character_inputs=False, embedding_weight_file=outfile)`.

    Args:
        vocab_file: one word a line.
        options_file, weight_file: see `ElmoEmbedder`.
        outfile: written whole or not at all.
    Raises: OptionsError if the model reads words already, DataError, WeightsError.
    """
    vocab = Vocabulary(expanded(vocab_file))
    files = resolve(expanded(options_file), expanded(weight_file))
    keep_inputs(outfile, vocab_file, *model_files(*files))
    model = load_bilm(*files)
    if model.options.reads_words:
        raise OptionsError(f"{options_file}: the model reads words; its weights hold their vectors")
    encode = WordVectors(model)
    marks = dict(zip((BOS, EOS), encode.marks, strict=True))  # the vocabulary has its own
    with replacing(outfile) as temporary, NewHDF5(temporary) as file:
        shape = vocab.size, model.options.lstm.projection_dim
        table = file.create_dataset("embedding", shape, "float32")
        for start in range(0, vocab.size, TABLE_WORDS):
            ids = range(start, min(start + TABLE_WORDS, vocab.size))
            words = [vocab.id_to_word(i) for i in ids]
            table[start : ids.stop] = encode([marks.get(word, word) for word in words])
            file.check()
