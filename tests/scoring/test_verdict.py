"""The lines of the verdict on a model, from its figures."""

import pytest

from bilm.scoring.verdict import Comparison, Verdict

SHORT = Comparison(0.1, 150.0, 200.0, 60.0, 100.0, 1.06, 24, 4.5, 0.8, 0.21, 1000)


def test_verdict_on_a_short_run_asks_for_time():
    assert Verdict(75.0, 90.0, SHORT).lines == [
        "perplexity: 75.00; bigrams of the training text 60.00 (the model is 25.0 % worse), "
        "word frequencies of the training text 150.00 (the model is 50.0 % better)",
        "without unknown words, 10.0 %: 90.00; bigrams of the training text 100.00 (the model is "
        "10.0 % better), word frequencies of the training text 200.00 (the model is 55.0 % better)",
        "auto expected 40 to 58: not reached, 29.3 % worse",
        "epochs read: 1.06 of 24 useful ones",
        "advice: more time: a new run of all 24 useful epochs, about 4.50 hours (--hours), should "
        "be 21 % better",
    ]


ALL_READ = SHORT.replace(n_epochs=13.0, gain=0.02)
UNPLANNED = SHORT.replace(n_useful=None, ratio=None, hours=None, gain=None)
TESTED = Comparison(0.0, 200.0, 200.0)


@pytest.mark.parametrize(
    ("mean", "compared", "advice"),
    [
        pytest.param(50.0, SHORT.replace(hours=None), "more time: a new run of all 24 useful "
                     "epochs should be 21 % better"),
        pytest.param(61.0, ALL_READ, "more text or a smaller model"),
        pytest.param(50.0, SHORT.replace(n_predictions=3), "longer held-out text: found 3 "
                     "predictions, expected 200 or more, because such differences may be chance"),
        pytest.param(59.0, ALL_READ, "none needed"),
        pytest.param(59.0, ALL_READ.replace(unknown=0.25), "more text or a lower --min_count: "
                     "25.0 % of the words are unknown"),
        pytest.param(61.0, UNPLANNED, "more epochs (--n_epochs), more text or a smaller model"),
        pytest.param(201.0, TESTED, "more epochs (--n_epochs), more text or a smaller model"),
        pytest.param(199.0, TESTED, "none, because the counts of the training text are not stored "
                     "with the model"),
    ],
)  # fmt: skip
def test_advice_follows_from_the_figures(mean, compared, advice):
    assert Verdict(mean, None, compared).lines[-1] == f"advice: {advice}"


def test_verdict_without_counts_of_the_training_text_names_the_tested_text():
    assert Verdict(100.0, 100.0, TESTED).lines[:-1] == [
        "perplexity: 100.00; word frequencies of the tested text 200.00 (the model is 50.0 % "
        "better)"
    ]


@pytest.mark.parametrize(
    ("mean", "result"), [(40.0, "reached"), (58.4, "reached"), (30, "reached")]
)
def test_expected_range_is_reached_below_its_upper_end(mean, result):
    assert Verdict(mean, None, SHORT).lines[1] == f"auto expected 40 to 58: {result}"
