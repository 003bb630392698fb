"""ELMo vectors in spaCy's documents: the pipeline component `bilm`.

spaCy imports this module whenever it makes a pipeline, so it must not import Keras or TensorFlow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bilm.embedding.collecting import Layers, side_by_side
from bilm.embedding.shared import ModelFiles, shared_embedder
from bilm.errors import OptionsError, WeightsError
from bilm.support.files import replacing
from bilm.support.imports import needed

with needed("spacy", "The spaCy component bilm"):
    from spacy.language import Language
    from spacy.pipeline import Pipe
    from spacy.tokens import Doc, Span, Token
    from spacy.util import minibatch


KEY = "bilm"  # of `Doc.user_data`: the vectors, and the places in the text where their tokens start


@Language.factory(
    "bilm",
    assigns=["doc.tensor", "token.vector"],
    default_config={
        "model": None, "weights": None, "vocab": None, "layers": "average", "precision": "float32"
    },
)  # fmt: skip
def make_component(
    nlp: Language, name: str, model: str | None, weights: str | None, vocab: str | None,
    layers: str | list[int], precision: str,
) -> ElmoComponent:  # fmt: skip
    """Return the component that `nlp.add_pipe("bilm", config={"model": ...})` adds. Raises:
    OptionsError without a model."""
    if model is None:
        raise OptionsError(
            f'the component {name} has no model; expected nlp.add_pipe("bilm", '
            'config={"model": "folder, archive, URL or published name"})'
        )
    return ElmoComponent(name, ModelFiles(model, weights, vocab), layers, precision)


class ElmoComponent(Pipe):
    """Sets `doc.tensor` to the vectors of a document's tokens, float32 (tokens, features).

    `token.vector`, `span.vector`, `doc.vector` (means over tokens) and similarities are computed
    from a copy, so later components may merge tokens or set `doc.tensor`. If an earlier component
    has set sentences, each sentence is embedded separately; otherwise a document is one sentence.
    Tokens of white space have zero vectors. The words are the tokens of spaCy's tokenizer, so
    untokenized text needs no preparation.

    The model is loaded with the first document, once per process. Stored pipelines contain its name
    and a digest of its files; loading them with other files is an error. Several `layers` are
    concatenated.
    """

    def __init__(self, name: str, files: ModelFiles, layers: Layers, precision: str):
        self.name, self.files = name, files
        self.layers, self.precision = layers, precision
        self._digest = ""  # of the files, once they are used

    def __call__(self, doc: Doc) -> Doc:
        """Set the vectors of a document."""
        self._embed([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Set the vectors of a stream of documents, `batch_size` at a time."""
        for docs in minibatch(stream, size=batch_size):
            try:
                self._embed(docs)
                yield from docs
            except Exception as error:
                self.get_error_handler()(self.name, self, docs, error)

    def _embed(self, docs: list[Doc]) -> None:
        self._digest = self._digest or self.files.digest()
        embedder = shared_embedder(self.files, self._digest, self.precision)
        n_features = embedder.selection(self.layers).n_features

        # Sentences of all documents together, which are faster than one document at a time.
        sentences = [tokens for doc in docs for tokens in _sentences(doc)]
        words = ([token.text for token in tokens] for tokens in sentences)
        embedded = embedder.embed_sentences(words, self.layers)
        for doc in docs:
            doc.tensor = np.zeros((len(doc), n_features), np.float32)
        for tokens, vectors in zip(sentences, embedded, strict=True):
            places = [token.i for token in tokens]
            tokens[0].doc.tensor[places] = side_by_side(vectors)
        for doc in docs:
            doc.user_data.pop(KEY, None)
            set_hooks(doc)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the name of the model and the digest of its files."""
        state = {"model": str(self.files.model), "digest": self.files.digest()}
        return json.dumps(state).encode()

    def from_bytes(
        self, data: bytes, *, exclude: Iterable[str] = (), source: str = "a stored component"
    ) -> ElmoComponent:
        """Check that the model is the stored one; `source` names the data in errors. Raises:
        WeightsError if it is another model, or the data are not from a component."""
        try:
            digest = str(json.loads(data)["digest"])
        except (ValueError, TypeError, KeyError) as error:
            raise WeightsError(
                f"{source}: not a stored component bilm ({error!r}); store the pipeline again"
            ) from error
        self.files.check(digest, "the stored pipeline")
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write a file with the name of the model and the digest of its files."""
        with replacing(path) as temporary:
            temporary.write_bytes(self.to_bytes())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> ElmoComponent:
        """Check that the model is the stored one; see `from_bytes`."""
        return self.from_bytes(Path(path).read_bytes(), source=os.fspath(path))


def set_hooks(doc: Doc) -> None:
    """Compute the vectors and similarities of a document from the component's vectors only, which
    `doc.user_data` contains, or else `doc.tensor`. Documents that were stored, or came from another
    process, lose these hooks; this function sets them again."""
    if KEY not in doc.user_data:
        starts = np.array([token.idx for token in doc], np.int64)
        doc.user_data[KEY] = {"starts": starts, "vectors": doc.tensor}
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks["vector"], hooks["has_vector"] = _vector, _has_vector
        hooks["similarity"] = _similarity


def _sentences(doc: Doc) -> Iterator[list[Token]]:
    sentences = doc.sents if doc.has_annotation("SENT_START") else [doc]
    for sentence in sentences:
        tokens = [token for token in sentence if not token.is_space]
        if tokens:
            yield tokens


def _vector(of: Doc | Span | Token) -> np.ndarray:
    """Return the mean vector of the tokens that the component read at this place in the text."""
    if isinstance(of, Token):
        start, end = of.idx, of.idx + len(of)
    else:
        start, end = (0, len(of.text)) if isinstance(of, Doc) else (of.start_char, of.end_char)
    kept = (of if isinstance(of, Doc) else of.doc).user_data[KEY]
    starts, vectors = kept["starts"], kept["vectors"]
    if start == end:
        return np.zeros(vectors.shape[1:], vectors.dtype)
    first = np.searchsorted(starts, start, "right") - 1  # the token may have been split
    return vectors[first : np.searchsorted(starts, end)].mean(axis=0)


def _has_vector(of: Doc | Span | Token) -> bool:
    return True


def _similarity(of: Doc | Span | Token, other: Doc | Span | Token) -> float:
    norms = np.linalg.norm(of.vector) * np.linalg.norm(other.vector)
    if norms == 0:
        return 0.0
    return float(np.dot(of.vector, other.vector) / norms)
