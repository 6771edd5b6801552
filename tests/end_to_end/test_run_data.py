"""The text of a run: never contradicted by a setting, never swapped, and recorded as it is."""

import dataclasses
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from multihead.config.resolve import configure
from multihead.config.schema import OLD_DATA_SETTINGS, DataConfig, Settings
from multihead.data.parallel_text import from_files
from multihead.data.prepare import DIRECTION_FIELDS, TRAINING_ONLY_FIELDS, preparation_settings, prepare
from multihead.data.shards import CorpusSummary, read_summary
from multihead.errors import UsageError, UserError
from multihead.model.weights import load_model
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage import files
from multihead.storage.checksums import CHECKSUM_FILE
from multihead.storage.files import content_sum
from multihead.storage.model_folder import published_step, read_config, replace_config
from tests.conftest import QUICK, copy_or_reverse, write_pairs

LANGUAGES: Settings = {"data.source_lang": "en", "data.target_lang": "de"}
ONE_STEP: Settings = {**QUICK, "train.steps": 1}
SINCE = ("file_sums", "settings", "asked_vocabulary")  # what corpus.json of older versions does not have


def prepare_pairs(folder: Path, pairs: list[tuple[str, str]], vocab_size: int, settings: Settings = LANGUAGES) -> Path:
    folder.parent.mkdir(exist_ok=True)
    text = from_files(*write_pairs(folder.parent, pairs))
    prepare(text, folder, configure({"data.max_length": 32}, settings).data, vocab_size)
    return folder


@pytest.fixture
def p1(tmp_path: Path) -> Path:
    return prepare_pairs(tmp_path / "first" / "p1", copy_or_reverse(120, seed=1), vocab_size=270)


@pytest.fixture
def p2(tmp_path: Path) -> Path:
    return prepare_pairs(tmp_path / "second" / "p2", copy_or_reverse(80, seed=2), vocab_size=280)


def request(output: Path, data: Path, settings: Settings | None = None) -> TrainingRequest:
    return TrainingRequest(output=output, data=data, preset="base", settings={**ONE_STEP, **(settings or {})})


def text_request(output: Path, prepared: Path, settings: Settings | None = None) -> TrainingRequest:
    """The same text, as files."""
    source, target = prepared.parent / "text.src", prepared.parent / "text.tgt"
    given = {**ONE_STEP, **LANGUAGES, **(settings or {})}
    return TrainingRequest(output=output, source=source, target=target, preset="base", settings=given)


def vocab_size(folder: Path) -> int:
    """Of a model that can be loaded."""
    return load_model(folder)[1].vocab_size


def as_by_an_older_version(folder: Path) -> None:
    (folder / CHECKSUM_FILE).unlink()
    path = folder / "corpus.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({name: value for name, value in document.items() if name not in SINCE}))


def forget_the_corpus(run: Path) -> None:
    """Make config.json that of an older version."""
    document = json.loads((run / "config.json").read_text(encoding="utf-8"))
    document.get("provenance", {}).pop("corpus_sha256", None)
    replace_config(run, json.dumps(document))


# (a) and (b): settings beside --data


def test_a_vocabulary_size_that_the_prepared_corpus_does_not_have_is_refused(p1: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has model\.vocab_size=270, but --set sets model\.vocab_size=2000"):
        train(request(tmp_path / "run", p1, {"model.vocab_size": "2000"}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data.max_length", 20),
        ("data.tokenizer", "wordpiece"),
        ("data.clean", False),
        ("data.max_ratio", 9),
        ("data.source_lang", "fr"),
    ],
)
def test_a_setting_that_contradicts_the_prepared_corpus_is_refused(
    p1: Path, tmp_path: Path, name: str, value: object
) -> None:
    with pytest.raises(UsageError, match=rf"has {name}=\S+, but --set sets"):
        train(request(tmp_path / "run", p1, {name: value}))
    assert not (tmp_path / "run").exists()


def test_the_configuration_of_a_run_says_how_its_prepared_corpus_was_made(tmp_path: Path) -> None:
    made = {**LANGUAGES, "data.clean": False, "data.max_ratio": 9.0}
    data = prepare_pairs(tmp_path / "text" / "p", copy_or_reverse(120, seed=1), 270, made)
    run = request(tmp_path / "run", data, {"data.clean": "false", "model.vocab_size": "270"})
    train(run)
    stored = read_config(run.output)
    assert (stored.data.clean, stored.data.max_ratio, stored.data.max_length) == (False, 9.0, 32)
    assert (stored.data.source_lang, stored.model.vocab_size) == ("en", 270)
    train(run)


def test_every_setting_that_matters_to_a_corpus_is_recorded(p1: Path) -> None:
    """A field that is added to DataConfig belongs to the corpus unless prepare.py says that it does not."""
    fields = {field.name for field in dataclasses.fields(DataConfig)}
    assert read_summary(p1).settings.keys() == fields - TRAINING_ONLY_FIELDS - DIRECTION_FIELDS
    assert fields > TRAINING_ONLY_FIELDS


def test_a_language_that_the_corpus_does_not_know_can_be_given(tmp_path: Path) -> None:
    data = prepare_pairs(tmp_path / "text" / "p", copy_or_reverse(120, seed=1), 270, {})
    train(request(tmp_path / "run", data, {"data.target_lang": "fr"}))
    assert read_config(tmp_path / "run").data.target_lang == "fr"


# (c): interrupted between preparing and training


@pytest.fixture
def interrupted(p1: Path, tmp_path: Path) -> TrainingRequest:
    """A run whose text is prepared, and nothing else."""
    run = text_request(tmp_path / "run", p1, {"model.vocab_size": 270})
    train(run)
    for path in run.output.iterdir():
        if path.is_dir() and path.name != "data":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    return run


def test_what_an_interrupted_start_has_prepared_is_used(interrupted: TrainingRequest) -> None:
    before = (interrupted.output / "data" / "corpus.json").stat().st_ino
    train(interrupted)
    assert (interrupted.output / "data" / "corpus.json").stat().st_ino == before


@pytest.mark.parametrize(
    "change",
    [{"model.vocab_size": 280}, {"data.clean": False}, {"data.max_length": 20}, {"data.target_lang": "fr"}],
)
def test_after_an_interrupted_start_with_other_settings_the_text_is_prepared_again(
    interrupted: TrainingRequest, change: Settings
) -> None:
    run = replace(interrupted, settings={**interrupted.settings, **change})
    train(run)
    summary, stored = read_summary(run.output / "data"), read_config(run.output)
    assert vocab_size(run.output) == summary.vocab_size == run.settings["model.vocab_size"]
    assert summary.settings == preparation_settings(stored.data)
    assert stored == configure(change, start=stored)


def test_after_an_interrupted_start_with_a_given_vocabulary_an_automatic_one_is_learned(
    interrupted: TrainingRequest,
) -> None:
    settings = {name: value for name, value in interrupted.settings.items() if name != "model.vocab_size"}
    train(replace(interrupted, settings=settings))
    assert vocab_size(interrupted.output) > 280


def test_after_an_interrupted_start_with_other_text_of_the_same_size_that_text_is_prepared(
    interrupted: TrainingRequest,
) -> None:
    source = interrupted.source
    assert isinstance(source, Path)
    source.write_text(source.read_text(encoding="utf-8").replace("copy", "move"), encoding="utf-8")
    train(interrupted)
    assert read_summary(interrupted.output / "data").matches(interrupted.text())


def test_after_an_interrupted_start_standard_input_is_read_again(
    interrupted: TrainingRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but its content identifies it, and it may be other text this time."""
    target = interrupted.target
    assert isinstance(target, Path)
    run = replace(interrupted, source=Path("-"))

    def pipe(word: str) -> None:
        lines = "".join(f"{word} {line}\n" for line in target.read_text(encoding="utf-8").splitlines())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))

    pipe("repeat")
    train(run)
    first = (run.output / "data" / "tokenizer.json").read_bytes()
    (run.output / "config.json").unlink()
    shutil.rmtree(run.output / "checkpoints")
    pipe("again")
    train(run)
    assert (run.output / "data" / "tokenizer.json").read_bytes() != first
    train(run)  # a run that exists has its text, and reads nothing


# (d): another corpus for a run


def test_a_run_cannot_resume_with_another_prepared_corpus(p1: Path, p2: Path, tmp_path: Path) -> None:
    train(request(tmp_path / "run", p1))
    with pytest.raises(UserError, match="contains a run on different data"):
        train(request(tmp_path / "run", p2, {"train.steps": 2}))
    assert (tmp_path / "run" / "data").resolve() == p1.resolve()
    assert read_config(tmp_path / "run").train.steps == 1


def test_a_prepared_corpus_and_its_files_are_the_same_text_and_others_are_not(
    p1: Path, p2: Path, tmp_path: Path
) -> None:
    train(request(tmp_path / "prepared", p1))
    train(text_request(tmp_path / "prepared", p1))
    train(text_request(tmp_path / "files", p1, {"model.vocab_size": 270}))
    train(request(tmp_path / "files", p1))
    assert not (tmp_path / "files" / "data").is_symlink()
    for other in (text_request(tmp_path / "prepared", p2), request(tmp_path / "files", p2)):
        with pytest.raises(UserError, match="contains a run on different data"):
            train(other)


def test_other_text_of_the_same_size_is_other_text(p1: Path, tmp_path: Path) -> None:
    run = text_request(tmp_path / "run", p1)
    train(run)
    assert isinstance(run.source, Path)
    run.source.write_text(run.source.read_text(encoding="utf-8").replace("copy", "move"), encoding="utf-8")
    with pytest.raises(UserError, match="contains a run on different data"):
        train(run)


def test_a_corpus_that_was_replaced_where_it_stood_is_refused(p1: Path, p2: Path, tmp_path: Path) -> None:
    train(request(tmp_path / "run", p1))
    shutil.rmtree(p1)
    shutil.copytree(p2, p1)
    with pytest.raises(UserError, match="contains a run on different data"):
        train(TrainingRequest(output=tmp_path / "run", settings={"train.steps": 2}))


# (e): what an interrupted command has left


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_that_was_left_behind_is_not_followed(p1: Path, p2: Path, tmp_path: Path, is_there: bool) -> None:
    for at, (left, asked) in enumerate([(p1, p2), (p2, p1)]):
        run = request(tmp_path / f"run{at}", asked)
        run.output.mkdir()
        (run.output / "data").symlink_to(left if is_there else tmp_path / "nowhere")
        train(run)
        assert vocab_size(run.output) == read_summary(asked).vocab_size
        assert (run.output / "data").resolve() == asked.resolve()


def test_a_link_that_was_left_behind_gives_way_to_files(p1: Path, p2: Path, tmp_path: Path) -> None:
    for name, left in (("there", p2), ("gone", tmp_path / "nowhere")):
        run = text_request(tmp_path / name, p1)
        run.output.mkdir()
        (run.output / "data").symlink_to(left)
        train(run)
        assert not (run.output / "data").is_symlink()
        assert vocab_size(run.output) == read_summary(run.output / "data").vocab_size
    assert read_summary(p2).vocab_size == 280


def test_a_preparation_that_was_killed_does_not_stop_a_prepared_corpus(p1: Path, tmp_path: Path) -> None:
    run = request(tmp_path / "run", p1)
    (run.output / ".data.partial").mkdir(parents=True)
    train(run)
    assert not list(run.output.glob(".*.partial"))


def test_a_corpus_that_the_user_has_put_into_the_run_is_not_removed(p1: Path, p2: Path, tmp_path: Path) -> None:
    shutil.copytree(p2, tmp_path / "run" / "data")
    with pytest.raises(UserError, match="holds a different corpus"):
        train(request(tmp_path / "run", p1))
    train(request(tmp_path / "run", tmp_path / "run" / "data"))
    assert vocab_size(tmp_path / "run") == 280


# (f): a prepared corpus that was moved


@pytest.mark.parametrize("older", [False, True])
def test_a_prepared_corpus_can_be_moved(p1: Path, p2: Path, tmp_path: Path, older: bool) -> None:
    if older:
        as_by_an_older_version(p1)
    run = request(tmp_path / "run", p1)
    train(run)
    if older:
        forget_the_corpus(run.output)
    moved = p1.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="is missing; give its prepared corpus with --data"):
        train(replace(run, data=None))
    with pytest.raises(UserError, match="contains a run on different data"):
        train(replace(run, data=p2))
    train(replace(run, data=moved, settings={**ONE_STEP, "train.steps": 2}))
    assert published_step(run.output) == 2
    train(replace(run, data=None, settings={**ONE_STEP, "train.steps": 3}))
    assert published_step(run.output) == 3


# Older versions


def test_a_corpus_and_a_run_of_an_older_version_are_recognized_by_the_sizes_of_their_files(
    p1: Path, p2: Path, tmp_path: Path
) -> None:
    as_by_an_older_version(p1)
    run = request(tmp_path / "run", p1, {"data.clean": False})  # nothing there says otherwise
    train(run)
    forget_the_corpus(run.output)
    train(run)
    train(text_request(run.output, p1, {"data.clean": False}))
    for other in (request(run.output, p2, {"data.clean": False}), text_request(run.output, p2, {"data.clean": False})):
        with pytest.raises(UserError, match="contains a run on different data"):
            train(other)


def test_a_summary_of_an_older_version_is_read(p1: Path) -> None:
    before = read_summary(p1)
    as_by_an_older_version(p1)
    after = read_summary(p1)
    assert after == replace(before, file_sums=[], settings={}, asked_vocabulary="")
    assert isinstance(after, CorpusSummary)
    assert after.known_settings() == {
        "model.vocab_size": 270,
        "data.source_lang": "en",
        "data.target_lang": "de",
        "data.tokenizer": "bpe",
        "data.max_length": 32,
        # Text was not normalized then, and fewer rules cleaned it.
        **{f"data.{name}": value for name, value in OLD_DATA_SETTINGS.items()},
    }


# Content


def test_a_file_is_identified_by_its_whole_content(tmp_path: Path) -> None:
    path, seen = tmp_path / "text", set[str]()
    for content in (b"", b"a", b"ab", b"ba", bytes(3 << 20), bytes(3 << 20)[:-1] + b"x", b"x" + bytes(3 << 20)[:-1]):
        path.write_bytes(content)
        seen.add(content_sum(path))
    assert len(seen) == 7


def test_a_very_large_file_is_identified_by_its_size_and_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 10)
    monkeypatch.setattr(files, "MAX_BLOCKS", 4)
    path, content = tmp_path / "text", bytes(100)

    def sum_of(content: bytes) -> str:
        path.write_bytes(content)
        return content_sum(path)

    noticed = [sum_of(content[:at] + b"x" + content[at + 1 :]) != sum_of(content) for at in range(100)]
    assert noticed[:10] == noticed[-10:] == [True] * 10
    assert sum(noticed) == 40
    assert sum_of(content + b"\0") != sum_of(content)
