"""Decisions between the steps of a run: a false clock, and no TensorFlow."""

import math
from dataclasses import dataclass, replace

import pytest
from command_runs import output_of
from options_examples import RUN
from tiny_specs import heldout_of, spec_of

from bilm.options.run_options import RunOptions
from bilm.scoring.verdict import Measurement
from bilm.storage.run_record import AutoChoice
from bilm.training import auto
from bilm.training.decisions import (
    Timing,
    comparison,
    evaluation_seconds,
    is_done,
    is_evaluation_due,
    is_save_due,
    is_save_late,
    pace,
    processor_share,
    run_hours,
)
from bilm.training.settings import RunSettings
from bilm.training.spec import RunProgress

TINY = RunOptions.from_dict(RUN)
N_TOKENS = 350_000  # of a text whose recipe has 24 epochs


@dataclass
class FalseClock:
    """A clock that only tests move; `share`: fraction of the time in which the process computes."""

    seconds: float = 100.0
    computed: float = 0.0
    share: float = 1.0

    def monotonic(self) -> float:
        return self.seconds

    def process_time(self) -> float:
        return self.computed

    def move(self, seconds: float) -> None:
        self.seconds += seconds
        self.computed += self.share * max(0.0, seconds)


def timed(*steps, share=1.0):
    """The clock and the timing after steps of so many seconds; the first step compiles."""
    clock = FalseClock(share=share)
    timing = Timing.start(clock)
    for k, seconds in enumerate(steps):
        clock.move(seconds)
        timing = timing.after_step(clock, compiles=k == 0)
    return clock, timing


def budget_spec(seconds=math.inf, heldout=None, **others):
    """A run of `auto` with a time budget that starts when the false clock does."""
    choice = AutoChoice(None, "float32", seconds / 3600 if seconds < math.inf else None, None)
    options = auto.options_for(N_TOKENS)
    others = {"auto": choice, "deadline": 100.0 + seconds} | others
    return spec_of(options, heldout=heldout, **others)


def simulate(spec, seconds, evaluation=0.0, compiling=10.0):
    """Take the steps of a run, each of `seconds(step)`, on a false clock; return its clock, its
    last spec, and the lengths that it had."""
    clock = FalseClock()
    timing = Timing.start(clock)
    progress = RunProgress()
    lengths = [spec.n_steps]
    compiles = True
    while progress.step < spec.n_steps:
        clock.move(compiling if compiles else seconds(progress.step))
        progress = replace(progress, step=progress.step + 1)
        timing = timing.after_step(clock, compiles)
        compiles = False
        change = pace(spec, progress, timing)
        if change is not None:
            spec = spec.with_pace(change.n_steps, change.changes)
            lengths.append(spec.n_steps)
            compiles = bool(change.changes)
        if is_evaluation_due(spec, progress):
            clock.move(evaluation)
            timing = timing.after_evaluation(clock)
    return clock, spec, lengths


@pytest.mark.parametrize("step", [0.1, 0.5, 3.0])
def test_quiet_machine_ends_on_time_and_changes_its_length_once(step):
    clock, spec, lengths = simulate(budget_spec(600), lambda _: step)
    assert 0.9 * 600 <= clock.seconds - 100 <= 1.02 * 600
    assert len(lengths) == 2 and spec.auto.n_steps == spec.n_steps < lengths[0]


def test_length_and_regularization_follow_the_measured_pace():
    """A run that is shorter than an epoch has no regularization and the largest rate."""
    spec = budget_spec(300)
    _, changed, _ = simulate(spec, lambda _: 2.0)
    assert changed.n_epochs(changed.n_steps) < 1
    assert changed.options.dropout == 0 and changed.options.learning_rate == auto.FAST_RATE
    _, long, lengths = simulate(budget_spec(10**7), lambda _: 0.05)
    assert long.options == spec.options and lengths[-1] == lengths[0]


@pytest.mark.parametrize("factor", [3, 8])
def test_load_that_comes_and_goes_ends_on_time(factor):
    def seconds(step):
        return 0.3 * (factor if 300 <= step < 600 else 1)

    clock, _, _ = simulate(budget_spec(900), seconds)
    assert 0.6 * 900 <= clock.seconds - 100 <= 1.05 * 900


def test_load_that_stays_ends_on_time():
    clock, _, _ = simulate(budget_spec(900), lambda step: 0.3 if step < 500 else 1.5)
    assert clock.seconds - 100 <= 1.05 * 900


def test_first_step_of_90_seconds_is_no_measurement_of_a_step():
    clock, _, lengths = simulate(budget_spec(600), lambda _: 0.5, compiling=90.0)
    # Two graphs are compiled; half of the rest at least are steps.
    assert lengths[-1] >= 0.9 * (600 - 2 * 90) / 0.5
    assert clock.seconds - 100 <= 1.02 * 600


@pytest.mark.parametrize("repeated", [(), (7, 8)])
def test_evaluations_longer_than_training_are_in_the_budget(repeated):
    heldout = heldout_of(40_000, repeated)
    spec = budget_spec(900, heldout)
    clock, _, _ = simulate(spec, lambda _: 0.2, evaluation=150.0)
    # The second evaluation of text with repeated sentences is not simulated.
    assert clock.seconds - 100 <= 1.05 * 900 + 150


@pytest.mark.parametrize("jump", [-50.0, 40.0, 10_000.0])
def test_clock_that_jumps_ends_the_run_without_an_error(jump):
    clock, spec, lengths = simulate(budget_spec(600), lambda step: 0.5 + jump * (step == 200))
    assert spec.n_steps >= 201 if jump > 600 else clock.seconds - 100 <= 1.1 * 600 + 50
    assert min(lengths) > 0


def test_budget_that_is_too_short_names_the_missing_time():
    spec = budget_spec(26)
    _, timing = timed(3.0, 6.0)
    change = pace(spec, RunProgress(2), timing)
    assert change.n_steps == 4 and change.n_useful_steps == 100
    assert change.missing_hours == pytest.approx((98 * 6 - 14) / 3600)


def test_run_without_a_budget_keeps_its_length():
    _, spec, lengths = simulate(budget_spec(), lambda _: 1e4)
    assert lengths == [spec.n_steps]


@pytest.mark.parametrize(("decay", "n_steps"), [("none", 240), ("linear", 120)])
def test_run_becomes_longer_unless_its_rate_would_rise(decay, n_steps):
    choice = AutoChoice(120, "float32", 1.0, None)
    spec = budget_spec(240, auto=choice)
    options = spec.options.replace(decay=decay, decay_start=0.0, warmup_steps=0)
    spec = replace(spec, options=options, n_steps=120)
    _, after, _ = simulate(spec, lambda _: 1.0, compiling=1.0)
    assert after.n_steps == pytest.approx(n_steps, abs=6)


@pytest.mark.parametrize(
    ("evaluations", "expected"), [([], 2.0), ([15.0], 3.0), ([12.0, 9.0], 9.0)]
)
def test_evaluation_is_expected_by_its_batches_then_without_compiling(evaluations, expected):
    """It takes the third of a step for each batch of 10 predictions."""
    options = TINY.replace(sample_softmax=False, batch_size=2, unroll_steps=5)
    heldout = heldout_of(40)
    clock, timing = timed(12.0, 1.5, 1.5)
    for seconds in evaluations:
        clock.move(seconds)
        timing = timing.after_evaluation(clock)
    assert evaluation_seconds(spec_of(options, heldout=heldout), timing) == expected


def test_saves_are_shared_by_the_steps_and_evaluations_are_not():
    clock, timing = timed(30.0, *[1.0] * 10, share=2.0)
    clock.move(10.0)
    timing = timing.after_save(clock)
    clock.move(50.0)
    timing = timing.after_evaluation(clock)
    assert (timing.step_seconds, timing.compiling, timing.last_evaluation) == (2.0, 30.0, 50.0)
    assert timing.computed == 20.0


@pytest.mark.parametrize("is_last", [False, True])
def test_step_that_compiles_again_does_not_change_the_advised_hours(is_last):
    clock, timing = timed(30.0, *[1.0] * 11)
    spec = run_of(heldout=heldout_of(9))
    before = run_hours(spec, timing, 1_000)
    clock.move(30.0)
    timing = timing.after_step(clock, compiles=True)
    if not is_last:
        clock.move(1.0)
        timing = timing.after_step(clock, compiles=False)
    hours = run_hours(spec, timing, 1_000)
    assert hours == before == pytest.approx((45 + 1_000) / 3_600, rel=0.2)


@pytest.mark.parametrize("n_steps", [10, 100, 1_000])
@pytest.mark.parametrize("at_evaluation", [1, 2])
def test_expected_hours_are_those_of_the_next_run(n_steps, at_evaluation):
    """After the first evaluation too, which compiles a graph."""
    spec = run_of(n_steps, heldout_of(9 * TINY.batch_size * TINY.unroll_steps))
    clock = FalseClock()
    timing = Timing.start(clock)
    expected = None
    n_evaluated = 0
    for step in range(1, n_steps + 1):
        clock.move(30.0 if step == 1 else 0.3)
        timing = timing.after_step(clock, compiles=step == 1)
        if is_evaluation_due(spec, RunProgress(step)):
            n_evaluated += 1
            clock.move(0.9 + 15.0 * (n_evaluated == 1))
            timing = timing.after_evaluation(clock)
            if n_evaluated == at_evaluation:
                expected = run_hours(spec, timing, n_steps)
    taken = (clock.seconds - 100) / 3600
    assert 0.8 * taken < expected < 1.25 * taken


def test_hours_are_unknown_before_a_step_was_measured():
    _, timing = timed(30.0)
    spec = run_of(heldout=heldout_of(9))
    assert run_hours(spec, timing, 10) is None


@pytest.mark.parametrize(("share", "expected"), [(2.0, None), (1.3, None), (0.38, 0.19)])
def test_share_of_the_processors_is_named_if_it_is_small(share, expected):
    _, timing = timed(8.0, 8.0, share=share)
    assert processor_share(timing, n_cores=2) == pytest.approx(expected)


def run_of(n_steps=10, heldout=None):
    settings = RunSettings(checkpoint_steps=3, checkpoint_minutes=15)
    return spec_of(TINY, n_steps, heldout, eval_steps=4, settings=settings)


def test_save_is_due_at_intervals_before_evaluations_and_at_the_end():
    spec = run_of(heldout=heldout_of(9))
    saved = [step for step in range(1, 11) if is_save_due(spec, RunProgress(step), False)]
    assert saved == [3, 4, 6, 8, 9, 10]
    assert is_save_due(spec, RunProgress(5), is_late=True)


def test_save_is_late_after_the_minutes():
    spec = run_of()
    assert not is_save_late(spec, Timing(saved=100.0), now=100.0 + 15 * 60)
    assert is_save_late(spec, Timing(saved=100.0), now=100.0 + 15 * 60 + 1)


def test_evaluation_is_due_at_intervals_and_at_the_end():
    spec = run_of(heldout=heldout_of(9))
    assert [k for k in range(1, 11) if is_evaluation_due(spec, RunProgress(k))] == [4, 8, 10]
    assert not any(is_evaluation_due(run_of(), RunProgress(k)) for k in range(1, 11))


@pytest.mark.parametrize("measured_step", [None, 8, 10])
def test_run_is_done_after_its_last_evaluation(measured_step):
    measured = None if measured_step is None else Measurement(measured_step, None, [])
    progress = RunProgress(10, measured=measured)
    assert is_done(run_of(heldout=heldout_of(9)), progress) == (measured_step == 10)
    assert is_done(run_of(), progress)
    assert not is_done(run_of(), RunProgress(9))
    assert is_done(run_of(9, heldout_of(9)), progress)


def test_comparison_names_the_useful_epochs_and_their_time():
    spec = budget_spec(heldout=heldout_of(9))
    _, timing = timed(0.0, 2.0)
    step = spec.epoch_steps // 2
    compared = comparison(replace(spec, n_steps=step), step, timing)
    assert compared.n_useful == 24 and compared.n_epochs == pytest.approx(0.5, abs=0.01)
    assert compared.hours == pytest.approx(24 * spec.epoch_steps * 2 / 3600, rel=0.01)
    assert compared.gain > 0.03
    assert comparison(budget_spec(), step) is None


def test_decisions_do_not_import_tensorflow():
    output_of("import sys; sys.modules['tensorflow'] = None; import bilm.training.decisions")
