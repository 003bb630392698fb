"""An iterator that is one value ahead."""

import threading

import pytest

from bilm.embedding.prefetch import ahead


def test_all_values_in_order():
    assert list(ahead(iter(range(5)))) == [0, 1, 2, 3, 4]
    assert list(ahead(iter([]))) == []
    assert list(ahead(iter([None, None]))) == [None, None]


def test_the_next_value_is_made_while_one_is_used_and_no_more():
    started = [threading.Event() for _ in range(4)]

    def values():
        for k, event in enumerate(started):
            event.set()
            yield k

    reader = ahead(values())
    assert next(reader) == 0
    assert started[1].wait(timeout=300)
    assert not started[2].wait(timeout=0.2)
    reader.close()


def test_an_error_comes_after_the_values_before_it():
    def values():
        yield 1
        raise ValueError("no more")

    reader = ahead(values())
    assert next(reader) == 1
    with pytest.raises(ValueError, match="no more"):
        next(reader)


def test_a_reader_who_stops_early_leaves_no_thread():
    before = set(threading.enumerate())
    reader = ahead(iter(range(100)))
    next(reader)
    reader.close()
    assert set(threading.enumerate()) <= before
