"""A sequence tagger on ELMo, as scripts for flair train it."""

import sys

from flair.data import Corpus, Sentence
from flair.datasets import ColumnDataset
from flair.embeddings import ELMoEmbeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

model, data, folder = sys.argv[1:]
columns = {0: "text", 1: "pos"}
train, held_out = (ColumnDataset(f"{data}/{name}.txt", columns) for name in ("train", "test"))
corpus = Corpus(train=train, dev=held_out, test=held_out)
labels = corpus.make_label_dictionary(label_type="pos", add_unk=False)
embeddings = ELMoEmbeddings(model, embedding_mode="all")
tagger = SequenceTagger(embeddings, labels, tag_type="pos", hidden_size=64, use_crf=False)
trainer = ModelTrainer(tagger, corpus)
result = trainer.train(folder, learning_rate=0.5, mini_batch_size=2, max_epochs=2)


def tags_of(tagger):
    sentence = Sentence("the small dog sees a house .", use_tokenizer=False)
    tagger.predict(sentence)
    return [label.value for label in sentence.get_labels("pos")]


tags = tags_of(tagger)
loaded_tags = tags_of(SequenceTagger.load(f"{folder}/final-model.pt"))
