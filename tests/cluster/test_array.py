"""Array tasks: their merged output equals the output of one command; every fault is detected."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_runs import assert_fails
from conftest import golden_cases
from small_disk import small_disk

from bilm.cluster import array, plan
from bilm.cluster.array import Merged, embed_task, merge_tasks, parse_shard, protect_output
from bilm.cluster.plan import place_of, write_json
from bilm.embedding.corpus import dump_bilm_embeddings
from bilm.embedding.outputs import open_parts
from bilm.errors import DataError, OptionsError
from bilm.support.files import LOCK, hold

pytestmark = pytest.mark.usefixtures("one_embedder")
ROOT = Path(__file__).parents[2]
CASE, OTHER = [case.values[0] for case in golden_cases("inference")[:2]]
FILES = CASE / "options.json", CASE / "weights.hdf5"
LINES = [f"line {i} of the text" for i in range(40)] + ["", "Где ты 😀 ?", "the end ."]
HOW = {"layers": "average", "part_sentences": 4}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def outfile(tmp_path):
    return tmp_path / "out" / "vectors.npz"


def task(text, outfile, i, n=3, files=FILES, reading=None, **how):
    return embed_task(None, text, files[0], files[1], outfile, i, n, reading, **{**HOW, **how})


def left(outfile):
    return sorted(path.name for path in outfile.parent.iterdir())


def arrays(path):
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file}
    with h5py.File(path) as file:
        return {name: item[...] for name, item in file.items()}


def assert_equal(one, other):
    one, other = arrays(one), arrays(other)
    assert list(one) == list(other)
    for name, expected in one.items():
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(other[name], expected, atol=1e-5)
        else:
            np.testing.assert_array_equal(other[name], expected)


@pytest.mark.parametrize("how", [{}, {"pool": "mean"}, {"layers": "all", "dtype": "float16"}])
@pytest.mark.parametrize("ending", ["npz", "hdf5"])
def test_merged_tasks_equal_one_command(text, tmp_path, outfile, ending, how):
    outfile, whole = outfile.with_suffix(f".{ending}"), tmp_path / f"whole.{ending}"
    dump_bilm_embeddings(None, text, *FILES, whole, **{**HOW, **how})
    results = [task(text, outfile, i, **how) for i in (2, 0, 1)]  # in any order
    assert {result.state for result in results} == {"finished"}
    assert merge_tasks(outfile) == Merged(3, len(LINES))
    assert left(outfile) == [outfile.name, f"{outfile.name}.manifest.json"]
    assert_equal(whole, outfile)
    manifest = json.loads(outfile.with_name(f"{outfile.name}.manifest.json").read_text())
    assert manifest["sentences"] == len(LINES)
    assert [one["sentences"] for one in manifest["tasks"]] == [
        result.n_sentences for result in sorted(results)
    ]


def test_tasks_of_several_files_with_ids(tmp_path, outfile):
    for name, ids in (("b.jsonl", range(5, 9)), ("a.jsonl", range(5))):
        rows = [json.dumps({"text": f"row {i} .", "id": f"x/{i}"}) for i in ids]
        (tmp_path / name).write_text("\n".join(rows))
    pattern, reading = tmp_path / "*.jsonl", {"column": "text", "id_column": "id"}
    for i in range(4):
        task(pattern, outfile, i, 4, reading=reading)
    merge_tasks(outfile)
    assert arrays(outfile)["ids"].tolist() == [f"x/{i}" for i in range(9)]


def test_equal_ids_of_different_tasks_are_refused(tmp_path, outfile):
    path, reading = tmp_path / "a.jsonl", {"column": "text", "id_column": "id"}
    path.write_text("".join(json.dumps({"text": "a b", "id": i % 9}) + "\n" for i in range(10)))
    for i in range(2):
        task(path, outfile, i, 2, reading=reading)
    with pytest.raises(DataError, match="records 1 and 10 both have the id '0'"):
        merge_tasks(outfile)


def test_more_tasks_than_sentences(tmp_path, outfile):
    text = tmp_path / "short.txt"
    text.write_text("one\ntwo words\n")
    assert [task(text, outfile, i, 5).n_sentences for i in range(5)].count(0) == 3
    assert merge_tasks(outfile) == Merged(5, 2)
    assert arrays(outfile)["offsets"].tolist() == [0, 1, 3]


# --- a task that runs twice, late or not at all ---


def test_merge_before_any_task_is_refused(outfile):
    with pytest.raises(DataError, match="is missing; run the tasks first"):
        merge_tasks(outfile)


def test_merge_names_missing_and_running_tasks(text, outfile):
    task(text, outfile, 1)
    with (
        open_parts(outfile.with_name("vectors.npz.tasks") / "00002", {}),
        pytest.raises(DataError, match=r"1 of 3 .*running: 2; .*missing .*: 0; .* --shard 0/3"),
    ):
        merge_tasks(outfile)
    assert not outfile.exists()


def test_task_that_runs_twice_is_not_repeated(text, outfile, monkeypatch):
    for i in range(3):
        task(text, outfile, i)
    monkeypatch.setattr(array, "prepare", None)  # computing would fail
    assert task(text, outfile, 1).state == "complete"
    merge_tasks(outfile)
    written = outfile.stat().st_mtime_ns
    late = task(text, outfile, 1)
    assert (late.state, late.n_sentences > 0) == ("merged", True)
    assert merge_tasks(outfile) == Merged(3, len(LINES))
    assert left(outfile) == ["vectors.npz", "vectors.npz.manifest.json"]
    assert outfile.stat().st_mtime_ns == written


def test_task_that_runs_twice_at_the_same_time_is_refused(text, outfile):
    with (
        open_parts(outfile.with_name("vectors.npz.tasks") / "00001", {}),
        pytest.raises(DataError, match="another process is writing"),
    ):
        task(text, outfile, 1)


def test_lock_is_held_until_the_first_task_has_written_the_plan(text, outfile, monkeypatch):
    check, free = plan.check_plan, []

    def check_plan(place, *arguments):
        free.append(hold(place.folder / LOCK))
        check(place, *arguments)

    monkeypatch.setattr(plan, "check_plan", check_plan)
    task(text, outfile, 0)
    assert set(free) == {None}


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("name", ["vectors.npz", "set/"])
def test_task_that_another_process_completes_first_changes_nothing(
    text, tmp_path, monkeypatch, name, is_merged
):
    if name.endswith("/"):
        pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    outfile, prepare = f"{tmp_path}/{name}", array.prepare

    def complete_and_prepare(*arguments):
        monkeypatch.setattr(array, "prepare", prepare)
        for i in range(3) if is_merged else (1,):
            task(text, outfile, i)
        if is_merged:
            merge_tasks(outfile)
        return prepare(*arguments)

    monkeypatch.setattr(array, "prepare", complete_and_prepare)
    assert task(text, outfile, 1).state == ("merged" if is_merged else "complete")
    place = place_of(outfile)
    assert place.folder.exists() is not is_merged
    for i in range(3):
        task(text, outfile, i)
    assert merge_tasks(outfile) == Merged(3, len(LINES))


def test_two_merges_at_once(text, outfile, monkeypatch):
    for i in range(3):
        task(text, outfile, i)
    locked = plan.locked

    def merge_and_lock(place):  # as a process that waits for the lock of another merge
        monkeypatch.setattr(plan, "locked", locked)
        merge_tasks(outfile)
        return locked(place)

    monkeypatch.setattr(plan, "locked", merge_and_lock)
    assert merge_tasks(outfile) == Merged(3, len(LINES))
    assert left(outfile) == ["vectors.npz", "vectors.npz.manifest.json"]


def test_output_of_spark_is_refused(text, tmp_path):
    (tmp_path / "set").mkdir()
    inputs = {"inputs": [str(text)]}
    write_json(tmp_path / "set" / "_manifest.json", {"sentences": 1, "plan": inputs})
    with pytest.raises(DataError, match="written by Spark; choose another folder"):
        task(text, f"{tmp_path}/set/", 0)
    with pytest.raises(DataError, match="written by Spark; choose another folder"):
        merge_tasks(f"{tmp_path}/set/")


def test_complete_output_is_written_again_with_other_settings(text, outfile):
    for layers in ("average", "top"):
        for i in range(3):
            assert task(text, outfile, i, layers=layers).state == "finished"
        merge_tasks(outfile)
        manifest = json.loads(outfile.with_name("vectors.npz.manifest.json").read_text())
        assert manifest["plan"]["layers"] == layers


@pytest.mark.parametrize("damage", ["missing", "other"])
def test_lost_part_is_detected_and_computed_again(text, outfile, damage, log):
    for i in range(3):
        task(text, outfile, i)
    parts = [outfile.with_name("vectors.npz.tasks") / f"0000{i}.parts" for i in range(3)]
    lost = parts[1] / "000001.rows"
    if damage == "missing":
        lost.unlink()
    else:
        lost.write_bytes((parts[0] / "000001.rows").read_bytes())
    with pytest.raises(DataError, match=r"000001\.rows: .*start task 1 again, with --shard 1/3"):
        merge_tasks(outfile)
    if damage == "other":
        lost.unlink()
    assert task(text, outfile, 1).state == "finished"
    assert "task 1 starts again" in log.text
    assert merge_tasks(outfile) == Merged(3, len(LINES))


# --- inputs, model and settings that change between tasks ---


def test_input_that_changes_between_two_tasks_is_refused(text, outfile):
    task(text, outfile, 0)
    content = text.read_text(encoding="utf-8")
    text.write_text(content.replace("line 39", "line 93"), encoding="utf-8")  # of the same size
    with pytest.raises(DataError, match=r"text\.txt: has changed since the first task started"):
        task(text, outfile, 2)
    text.write_text(content, encoding="utf-8")  # same content, another time
    assert task(text, outfile, 2).state == "finished"
    text.with_name("text2.txt").write_text("more\n")
    with pytest.raises(DataError, match=r"text2\.txt is not an input of all of them"):
        task(text.with_name("text*"), outfile, 1)


def test_input_that_changes_during_a_task_is_refused(text, outfile, monkeypatch):
    prepare = array.prepare

    def change_and_prepare(*arguments):
        with text.open("a") as file:
            file.write("more\n")
        return prepare(*arguments)

    monkeypatch.setattr(array, "prepare", change_and_prepare)
    with pytest.raises(DataError, match="changed"):
        task(text, outfile, 0)
    assert not outfile.with_name("vectors.npz.tasks").joinpath("00000.json").exists()


def test_file_that_appears_while_inputs_are_read_is_detected(text, outfile, monkeypatch):
    join = array._join

    def add_and_join(*arguments, **named):
        text.with_name("text2.txt").write_text("more\n")
        return join(*arguments, **named)

    monkeypatch.setattr(array, "_join", add_and_join)
    with pytest.raises(DataError, match="matches other files than before; repeat the command"):
        task(text.with_name("text*"), outfile, 0)


def test_other_model_or_settings_are_refused(text, outfile):
    task(text, outfile, 0)
    other = OTHER / "options.json", OTHER / "weights.hdf5"
    with pytest.raises(DataError, match=r"differs from the others in model \(.*\); all tasks"):
        task(text, outfile, 1, files=other)
    with pytest.raises(DataError, match=r"in layers \(.*, not .*\), dtype \(.*\); all tasks"):
        task(text, outfile, 1, layers="top", dtype="float16")
    with pytest.raises(DataError, match=r"belongs to 3 tasks, .* one of 4; use --shard i/3"):
        task(text, outfile, 1, n=4)


def test_task_with_an_error_does_not_bind_the_corrected_tasks(text, outfile):
    text.write_bytes(b"\xff\n" + text.read_bytes())
    with pytest.raises(DataError, match="not UTF-8"):
        task(text, outfile, 0, layers="all")
    assert left(outfile) == []
    for i in range(3):
        task(text, outfile, i, reading={"on_bad_utf8": "replace"}, layers="top")
    assert merge_tasks(outfile).n_sentences == len(LINES) + 1


def test_file_of_a_data_set_that_is_lost_after_the_merge_is_named(text, tmp_path):
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    outfile = f"{tmp_path}/set/"
    for i in range(3):
        task(text, outfile, i)
    merge_tasks(outfile)
    lost = tmp_path / "set" / "part-00001-of-00003.parquet"
    content = lost.read_bytes()
    lost.unlink()
    with pytest.raises(DataError, match=rf"{lost}: is missing or has changed since the merge"):
        merge_tasks(outfile)
    with pytest.raises(DataError, match=rf"of 3 tasks, but {lost.name} is missing or has changed"):
        task(text, outfile, 1)
    with pytest.raises(DataError, match=r"of 3 tasks, but this task differs in tasks, layers;"):
        lost.write_bytes(content)
        task(text, outfile, 1, n=4, layers="all")


# --- faults ---


KILLED = """
import os, signal, sys
from bilm.cluster.array import embed_task
from bilm.embedding.embedder import ElmoEmbedder
embed, done = ElmoEmbedder.embed_as_completed, []
def embed_or_die(*arguments):
    for found in embed(*arguments):
        done.append(found)
        if len(done) == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        yield found
ElmoEmbedder.embed_as_completed = embed_or_die
embed_task(None, *sys.argv[1:], 1, 3, layers="average", part_sentences=4)
"""


def test_killed_task_resumes_and_the_output_equals_one_command(text, tmp_path, outfile, log):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED, text, *FILES, outfile]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    task(text, outfile, 0)
    task(text, outfile, 2)
    with pytest.raises(DataError, match=r"2 of 3 .*missing or interrupted: 1;"):
        merge_tasks(outfile)
    assert task(text, outfile, 1).state == "finished"
    assert "continuing after 1 finished parts" in log.text
    merge_tasks(outfile)
    dump_bilm_embeddings(None, text, *FILES, tmp_path / "whole.npz", **HOW)
    assert_equal(tmp_path / "whole.npz", outfile)


def test_full_disk_of_a_task_or_of_the_merge_loses_nothing(text, outfile):
    with small_disk(500), pytest.raises(OSError):
        task(text, outfile, 0)
    for i in range(3):
        assert task(text, outfile, i).state == "finished"
    with small_disk(2_000), pytest.raises(OSError):
        merge_tasks(outfile)
    assert not outfile.exists()
    assert merge_tasks(outfile) == Merged(3, len(LINES))


def test_line_that_is_not_utf8_is_an_error_of_its_task_only(text, outfile):
    lines = text.read_bytes().splitlines(keepends=True)
    lines[35] = b"\xff\n"
    text.write_bytes(b"".join(lines))
    assert task(text, outfile, 0).state == "finished"
    with pytest.raises(DataError, match=r"text\.txt, line 36: not UTF-8"):
        task(text, outfile, 2)


def test_outputs_that_replace_other_files_are_refused(text, tmp_path):
    table = tmp_path / "rows.parquet"
    table.write_text("rows")
    with pytest.raises(DataError, match="is also an input"):
        protect_output(place_of(table), table)
    with pytest.raises(DataError, match=r"out: contains the input"):
        protect_output(place_of(f"{tmp_path}/out/"), tmp_path / "out" / "text.txt")
    with pytest.raises(DataError, match=r"contains text\.txt, but neither"):
        task(text, f"{tmp_path}/", 0)
    with pytest.raises(DataError, match="is a folder; to write a Parquet data set"):
        task(text, tmp_path, 0)
    with pytest.raises(DataError, match="found a URL"):
        task(text, "s3://bucket/vectors.npz", 0)


# --- the command ---


@contextmanager
def variables(monkeypatch, **values):
    with monkeypatch.context() as patch:
        for name in ("ID", "COUNT", "MIN", "STEP"):
            patch.delenv(f"SLURM_ARRAY_TASK_{name}", raising=False)
        for name, value in values.items():
            patch.setenv(f"SLURM_ARRAY_TASK_{name}", value)
        yield


def test_shards_of_slurm(monkeypatch):
    for values, expected in [
        ({"ID": "0", "COUNT": "4"}, (0, 4)),
        ({"ID": "4", "COUNT": "4", "MIN": "1"}, (3, 4)),
        ({"ID": "30", "COUNT": "4", "MIN": "0", "STEP": "10"}, (3, 4)),
    ]:
        with variables(monkeypatch, **values):
            assert parse_shard("slurm") == expected
    for values in ({}, {"ID": "4", "COUNT": "4"}, {"ID": "7", "COUNT": "2", "MIN": "2"}):
        with variables(monkeypatch, **values), pytest.raises(OptionsError, match="--shard slurm: "):
            parse_shard("slurm")


@pytest.mark.parametrize("text", ["4/4", "-1/4", "0/0", "1", "a/b", "1/4/2", "0/999999"])
def test_wrong_shard_is_refused(text):
    with pytest.raises(OptionsError, match="expected i/n"):
        parse_shard(text)


def test_array_of_four_commands(text, outfile, run_here, monkeypatch):
    how = ["--model", FILES[0], "--weights", FILES[1], "--input", text, "--output", outfile]
    for i in range(4):
        with variables(monkeypatch, ID=str(i + 1), COUNT="4", MIN="1"):
            done = run_here("bilm embed", *how, "--shard", "slurm", "--pool", "mean")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"task {i} of 4: ")
        assert done.stdout.endswith(f"run: bilm merge --output {outfile}\n")
    done = run_here("bilm merge", "--output", outfile, "--json")
    expected = {"output": str(outfile), "tasks": 4, "sentences": len(LINES)}
    assert json.loads(done.stdout) == expected
    done = run_here("bilm embed", *how, "--shard", "3/4", "--pool", "mean")
    assert done.stdout.endswith(f"was complete before; {outfile} is complete\n")


def test_options_that_exclude_each_other_are_refused(text, outfile, run_here):
    how = ["bilm embed", "--model", FILES[0], "--input", text, "--output", outfile]
    assert_fails(run_here(*how, "--shard", "0/2", "--engine", "spark"), "cannot be combined")
    assert_fails(run_here(*how, "--master", "local"), "applies only to --engine spark")
    assert_fails(run_here(*how[:-1], f"{outfile}/"), "only with --shard or --engine spark")
