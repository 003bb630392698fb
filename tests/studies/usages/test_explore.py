"""Maps of usages: coordinates, pictures, and the page in a real browser without network."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("plotly")
pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.clients

from bilm.studies.usages.change import measure_change
from bilm.studies.usages.maps import cluster, cluster_names, usage_map, write_page
from bilm.studies.usages.pictures import draw_change, draw_map, draw_run
from bilm.studies.usages.settings import Settings
from bilm.studies.usages.usages import Description, Grouping, Usage, Usages, frame_of
from bilm.training.history import History

PNG = b"\x89PNG\r\n\x1a\n"
ODD = 'a <script>alert(1)</script> "cell" & \u202etfel 😀 $x_1$ </script>'


def make_usages(n, word="cell", seed=0):
    """Return usages of a word in two groupings, with vectors of two senses."""
    draw = np.random.default_rng(seed)
    sense = draw.integers(0, 2, n)
    rows = []
    for k in range(n):
        words = (ODD if k == 0 else f"sentence {k} of sense {sense[k]} has a cell in it").split()
        position = 0 if k == 0 else words.index("cell")
        name = ("then", "now")[k % 2]
        place = f"{name}:{k}", f"{name}.txt", k + 1, position
        rows.append(Usage(word, name, *place, words))
    groupings = tuple(Grouping(name, (f"{name}.txt",), n, 9 * n) for name in ("then", "now"))
    counts = {word: {"then": (n + 1) // 2, "now": n // 2}}
    description = Description(groupings, counts, layers=(1, 2), dim=8)
    arrays = {
        layer: (draw.normal(size=(n, 8)) + 6 * layer * (2 * sense[:, None] - 1)).astype(np.float32)
        for layer in (1, 2)
    }
    return Usages(frame_of(rows), arrays, description)


def test_clusters_are_numbered_by_size_and_separate_senses():
    draw = np.random.default_rng(0)
    senses = draw.normal([5, 0, 0], 0.1, (30, 3)), draw.normal([0, 5, 0], 0.1, (10, 3))
    assert cluster(np.concatenate(senses), 2).tolist() == [0] * 30 + [1] * 10


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_or_equal_vectors_have_clusters_and_coordinates(n):
    usages = make_usages(n)
    frame = usage_map(usages)
    assert np.isfinite(frame[["x", "y"]].to_numpy()).all() and len(frame) == n
    assert cluster(np.ones((4, 3))).shape == (4,)


def test_map_keeps_cosine_neighbourhoods_of_two_senses():
    usages = make_usages(60)
    frame = usage_map(usages, 2)[1:]  # the first sentence does not state its sense
    sense = frame["sentence"].str.contains("sense 1").to_numpy()
    x = frame["x"].to_numpy()
    assert x[sense].min() > x[~sense].max() or x[sense].max() < x[~sense].min()


def test_clusters_are_named_by_words_that_are_typical_of_them():
    sentences = ["the drink of a cold spring"] * 4 + ["the return in a late spring"] * 3
    frame = pandas.DataFrame({"sentence": sentences, "position": 5, "cluster": [0] * 4 + [1] * 3})
    assert cluster_names(frame) == ["cluster 1: cold, drink, of", "cluster 2: in, late, return"]


def test_clusters_without_words_near_them_have_numbers_only():
    frame = pandas.DataFrame({"sentence": ["1 2 cell 3"] * 2, "position": 2, "cluster": [0, 1]})
    assert cluster_names(frame) == ["cluster 1", "cluster 2"]


def test_sample_keeps_the_order():
    usages = make_usages(50)
    lines = usages.sample(10, seed=1).frame["line"].tolist()
    assert len(lines) == 10 and lines == sorted(lines)


@pytest.mark.filterwarnings("ignore:Glyph")  # DejaVu has no emoji
@pytest.mark.parametrize("n", [10, 300])
def test_pictures_of_maps(n, tmp_path):
    figure = draw_map(make_usages(n), tmp_path / "m.png", color="cluster")
    assert (tmp_path / "m.png").read_bytes().startswith(PNG)
    assert figure._repr_png_().startswith(PNG)  # which notebooks show
    draw_map(make_usages(n), tmp_path / "m.svg")
    assert "then (" in (tmp_path / "m.svg").read_text()
    usages = make_usages(n)
    words = usages.frame["word"].where(usages.frame.index < 4, "monk")
    legend = draw_map(replace(usages, frame=usages.frame.assign(word=words))).axes[0].get_legend()
    assert [text.get_text() for text in legend.texts] == ["cell (4)", f"monk ({n - 4})"]


@pytest.mark.parametrize("n_words", [1, 5, 200])
def test_picture_of_changed_words(n_words, tmp_path):
    usages = [make_usages(20, f"word{k}", k) for k in range(min(n_words, 5))]
    frames = [measure_change(each, Settings(n_resamples=20)) for each in usages]
    draw_change(pandas.concat(frames * max(1, n_words // 5)), tmp_path / "c.svg")
    drawn = (tmp_path / "c.svg").read_text("utf-8")
    for text in (" (10 + 10)", "too few usages", "usages in then + now", "mean cosine distance"):
        assert text in drawn


def test_curve_of_a_run(tmp_path):
    history = History(tmp_path / "history.csv")
    for step, perplexity in ((1, {}), (2, {"heldout_perplexity": 90.0})):
        history.add(step, loss_forward=8.0 - step, loss_backward=6.0 - step, **perplexity)
    history.write()
    heldout, loss = draw_run(tmp_path).axes
    assert heldout.lines[0].get_xydata().tolist() == [[2, 90]]
    assert loss.lines[0].get_xydata().tolist() == [[1, 6], [2, 5]]
    labels = [heldout.get_ylabel(), loss.get_ylabel(), loss.get_xlabel()]
    assert labels == ["held-out perplexity", "training loss", "step"]


def test_usages_have_a_short_repr_and_a_table_without_empty_columns():
    usages = make_usages(4)
    assert repr(usages) == "<4 usages of cell in then, now; layers [1, 2]>"
    assert "sentence" in usages._repr_html_() and "lemma" not in usages._repr_html_()


@pytest.fixture(scope="module")
def browser():
    selenium = pytest.importorskip("selenium.webdriver")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("chromium or chromedriver is not installed")
    options = selenium.ChromeOptions()
    options.binary_location = program
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1280,900",
                 "host-resolver-rules=MAP * ~NOTFOUND"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = selenium.Chrome(options, selenium.ChromeService(driver))
    found.set_script_timeout(60)
    yield found
    found.quit()


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "usages.html"
    write_page([make_usages(40), make_usages(12, "bank", 1)], path)
    browser.get(path.as_uri())
    wait(browser, "return document.body.dataset.ready === 'yes'")
    return path


def wait(browser, script):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60).until(lambda b: b.execute_script(script))


def rows(browser):
    script = "return [...document.querySelectorAll('#body tr')].map(r => r.innerText)"
    return browser.execute_script(script)


def reopened(browser, page):
    browser.get(page.as_uri())
    wait(browser, "return document.body.dataset.ready === 'yes'")


def test_page_opens_without_network_and_without_errors(browser, page):
    reopened(browser, page)
    entries = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    assert entries == []
    assert "://" not in page.read_text("utf-8").split("/*! For license")[0].split("<script>")[0]
    assert len(rows(browser)) == 40


def test_odd_text_is_shown_as_text(browser, page):
    reopened(browser, page)
    assert "<script>alert(1)</script>" in rows(browser)[0]
    hover = browser.execute_script("return document.getElementById('map').data[0].text[0]")
    assert "&lt;script&gt;" in hover and "<script" not in hover


def test_clicked_usage_lists_its_neighbours_by_cosine(browser, page):
    reopened(browser, page)
    browser.execute_script("document.querySelectorAll('#body tr')[7].click()")
    numbers = browser.execute_script(
        "return [...document.querySelectorAll('#body tr')].map(r => +r.dataset.number)"
    )
    assert numbers == [7, *make_usages(40).nearest(7, 10).index]
