"""Training from files that contain both sides: chosen by language, weighted, and recognized when a run resumes."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

import multihead
from multihead.config.schema import OLD_DATA_SETTINGS, Settings
from multihead.data.shards import read_summary
from multihead.errors import UsageError, UserError
from multihead.runs.estimate import plan_run
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import prepare_corpus
from multihead.runs.train import train
from multihead.serve.languages import model_detector
from multihead.storage.model_folder import published_step, read_config
from tests.conftest import QUICK, copy_or_reverse, write_pairs
from tests.unit.text.test_detector import ENGLISH, GERMAN

SETTINGS: Settings = {**QUICK, "train.steps": 2}


def silent(line: str) -> None:
    pass


def tmx(path: Path, pairs: list[tuple[str, str]], source: str = "en-US", target: str = "de-AT") -> Path:
    units = "".join(
        f'<tu><tuv xml:lang="{source}"><seg>{one}</seg></tuv><tuv xml:lang="{target}"><seg>{other}</seg></tuv></tu>\n'
        for one, other in pairs
    )
    head = f'<tmx version="1.4"><header srclang="{source}"/><body>\n'
    path.write_text(f"{head}{units}</body></tmx>", encoding="utf-8")
    return path


def tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    return path


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmx(tmp_path / "memory.tmx", copy_or_reverse(120, seed=1))


def test_a_run_trains_on_a_memory_and_resumes_only_with_it(memory: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    multihead.train(output=run, corpus=memory, preset="base", settings=SETTINGS)
    assert published_step(run) == 2
    assert read_config(run).data.languages == ["en", "de"]
    multihead.train(output=run, corpus=[memory], preset="base", settings={**SETTINGS, "train.steps": 3})
    assert published_step(run) == 3
    memory.write_text(memory.read_text(encoding="utf-8").replace("<seg>", "<seg>again ", 1), encoding="utf-8")
    with pytest.raises(UserError, match="different data"):
        multihead.train(output=run, corpus=memory, preset="base", settings={**SETTINGS, "train.steps": 3})


def test_weights_are_those_of_the_sources_and_then_of_the_corpora(memory: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, copy_or_reverse(60, seed=2))
    table = tsv(tmp_path / "more.tsv", copy_or_reverse(50, seed=3))
    request = TrainingRequest(
        output=tmp_path / "data",
        source=source,
        target=target,
        corpora=[memory, table],
        weights=[1.0, 2.0, 5.0],
        settings={"data.source_lang": "en", "data.target_lang": "de"},
    )
    parts = prepare_corpus(request, silent).parts
    assert [part.weight for part in parts] == [1.0, 2.0, 5.0]
    assert [part.pairs > 40 for part in parts] == [True, True, True]
    with pytest.raises(UsageError, match="every --source and --corpus a --weight"):
        TrainingRequest(output=tmp_path, corpora=[memory], weights=[1.0, 2.0]).text()


def test_the_direction_can_be_turned_around(memory: Path, tmp_path: Path) -> None:
    request = TrainingRequest(output=tmp_path / "data", corpora=[memory], options={"data.source_lang": "de"})
    prepare_corpus(request, silent)
    summary = read_summary(tmp_path / "data")
    assert (summary.source_lang, summary.target_lang) == ("de", "en")


def test_a_table_whose_columns_are_swapped_is_refused(tmp_path: Path) -> None:
    pairs = [(f"Das ist der Satz {n} und nicht mehr.", f"This is the sentence {n} and no more.") for n in range(40)]
    table = tsv(tmp_path / "a.tsv", pairs)
    request = TrainingRequest(
        output=tmp_path / "data", corpora=[table], settings={"data.source_lang": "en", "data.target_lang": "de"}
    )
    with pytest.raises(UsageError, match=r"sides of .*a.tsv are swapped"):
        prepare_corpus(request, silent)


def test_a_plan_counts_the_pairs_of_a_memory(memory: Path, tmp_path: Path) -> None:
    request = TrainingRequest(output=tmp_path / "run", corpora=[memory], preset="base", settings=SETTINGS)
    planned = plan_run(request, tmp_path / "data", silent)
    assert planned.corpus.train_pairs > 100
    assert planned.config.data.languages == ["en", "de"]


@pytest.fixture
def bilingual(tmp_path: Path) -> TrainingRequest:
    """A run on text in two languages, from which they can be learned."""
    rng = random.Random(1)
    pairs = [(" ".join(rng.choices(ENGLISH, k=8)), " ".join(rng.choices(GERMAN, k=8))) for _ in range(600)]
    table = tsv(tmp_path / "pairs.tsv", pairs)
    settings = {**SETTINGS, "train.steps": 1, "data.source_lang": "en", "data.target_lang": "de"}
    return TrainingRequest(output=tmp_path / "run", corpora=[table], preset="base", settings=settings)


def test_a_published_model_knows_its_languages(bilingual: TrainingRequest) -> None:
    train(bilingual)
    assert "languages.safetensors" in (bilingual.output / "SHA256SUMS").read_text(encoding="utf-8")
    model = multihead.load(bilingual.output)
    assert model.segmenter.other_language(" ".join(GERMAN[:5])) == "de"
    assert model.segmenter.other_language(" ".join(ENGLISH[:5])) is None
    assert model.segmenter.are_reversed([GERMAN[1], " ".join(GERMAN), " ".join(GERMAN)])
    codes = ["en", "de"]
    found = model_detector([model.segmenter.detector], codes)
    assert found and found.rank(" ".join(GERMAN))[0].language == "de"
    assert model_detector([model.segmenter.detector, None], codes) is None


def test_a_run_of_an_older_version_resumes_without_the_newer_rules(bilingual: TrainingRequest) -> None:
    train(bilingual)
    for path, section in (
        (bilingual.output / "config.json", "data"),
        (bilingual.output / "data/corpus.json", "settings"),
    ):
        document = json.loads(path.read_text(encoding="utf-8"))
        for name in OLD_DATA_SETTINGS:
            del document[section][name]
        document.get("provenance", {}).pop("corpus_sha256", None)
        path.write_text(json.dumps(document), encoding="utf-8")
        (path.parent / "SHA256SUMS").unlink()
    train(replace(bilingual, settings={**bilingual.settings, "train.steps": 2}))
    data = read_config(bilingual.output).data
    assert (data.drop_language, data.min_letters, data.unicode) == (False, 0.0, "none")
    assert published_step(bilingual.output) == 2


def test_data_and_a_corpus_exclude_each_other(memory: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--corpus"):
        TrainingRequest(output=tmp_path / "run", data=tmp_path, corpora=[memory])
