"""What a signal does to a run."""

import signal

import pytest

from bilm.training.signals import stop_on_signal


@pytest.fixture
def deaf():
    """Start deaf to Ctrl-C, as under `nohup` and in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_ignored_ctrl_c_stays_ignored(deaf):
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert not stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_second_signal_has_its_previous_effect():
    with pytest.raises(KeyboardInterrupt), stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        signal.raise_signal(signal.SIGINT)
