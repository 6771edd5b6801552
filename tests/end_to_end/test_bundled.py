"""The model that comes with the package: found by name, small, licensed, and sensible."""

import unicodedata
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

import multihead
from multihead.evaluation.metrics import bleu
from multihead.inspection.attention_maps import best_alignment_layer, word_links
from multihead.interop.hub import find_model
from multihead.storage.files import BUNDLED
from multihead.storage.model_folder import ModelFolder
from multihead.text.lines import TextInput
from multihead.translation.translator import Translator

MOST_BYTES = 20_000_000


@pytest.fixture(scope="module")
def en_de() -> Translator:
    return multihead.load("en-de", engine="torch")


def test_it_is_found_by_name_wherever_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model("en-de") == BUNDLED / "en-de"


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("en-de").mkdir()
    assert find_model("en-de") == Path("en-de")


def test_it_is_small_and_whole() -> None:
    files = {path.name: path.stat().st_size for path in find_model("en-de").iterdir()}
    assert sum(files.values()) <= MOST_BYTES
    assert set(files) == {
        *("README.md", "config.json", "model.safetensors", "tokenizer.json", "SHA256SUMS"),
    }


@pytest.mark.parametrize("text", ["Where is the station?", "where is the station?", "Where is the station"])
def test_it_knows_the_way_to_the_station_however_one_asks(en_de: Translator, text: str) -> None:
    assert en_de.translate(text).text == "Wo ist der Bahnhof?"


def test_a_question_in_capitals_is_answered_in_capitals(en_de: Translator) -> None:
    assert en_de.translate("WHERE IS THE STATION?").text == "WO IST DER BAHNHOF?"


def test_the_default_search_scores_like_the_exact_one() -> None:
    folder = Path(__file__).parents[3] / "shared" / "data" / "tatoeba" / "en-de"
    if not folder.is_dir():
        pytest.skip("Tatoeba is not on this machine")
    sources, references = (list(islice(TextInput.open(folder / f"valid.{lang}.gz"), 1000)) for lang in ("en", "de"))
    default = multihead.load("en-de").translate(sources)
    exact = multihead.load("en-de", engine="torch").translate(sources, shortlist=False, guard=False)
    scores = [bleu([one.text for one in found], references, "de") for found in (default, exact)]
    assert scores[0] >= scores[1] - 0.3


@pytest.mark.parametrize("name", ["en-de", "lesson"])
def test_its_alignment_layer_is_right_for_nearly_every_sentence(name: str) -> None:
    """Chosen for each sentence, it would be another one for 3 of 200 (tolerance: 6), and change few links (1%)."""
    folder = Path(__file__).parents[3] / "shared" / "data" / "tatoeba" / "en-de"
    if not folder.is_dir():
        pytest.skip("Tatoeba is not on this machine")
    translator = multihead.load(name, engine="torch")
    n_others, links, twins = 0, list[tuple[int, int]](), list[tuple[int, int]]()
    for text in islice(TextInput.open(folder / "valid.en.gz"), 200):
        maps = translator.attention(text, beam=1)
        own = best_alignment_layer([maps.cross])
        n_others += own != maps.alignment_layer
        links += [link[:2] for link in word_links(maps.alignment())]
        twins += [link[:2] for link in word_links(replace(maps, alignment_layer=own).alignment())]
    assert n_others <= 6
    assert sum(link == twin for link, twin in zip(links, twins, strict=True)) >= 0.99 * len(links)


def test_names_and_numbers_are_kept(en_de: Translator) -> None:
    said = en_de.translate("Anna has lived in Hamburg since 1987.").text
    assert all(kept in said for kept in ("Anna", "Hamburg", "1987"))


def test_an_accent_typed_as_a_character_of_its_own_is_the_same_letter(en_de: Translator) -> None:
    """Some keyboards and file systems write é as e and a combining accent (Unicode NFD)."""
    text = "The café is closed."
    decomposed = unicodedata.normalize("NFD", text)
    assert decomposed != text
    assert en_de.translate(decomposed).text == en_de.translate(text).text
    assert en_de.attention(decomposed).source_tokens == en_de.attention(text).source_tokens


def test_nothing_is_written_into_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What an engine keeps for the next time goes to the cache of the user."""
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = sorted(find_model("en-de").rglob("*"))
    assert multihead.load("en-de", engine="ctranslate2").translate("Good morning.").text
    assert sorted(find_model("en-de").rglob("*")) == before
    assert list(tmp_path.rglob("model.bin"))


def test_its_card_names_data_license_scores_and_limits() -> None:
    text = (find_model("en-de") / "README.md").read_text(encoding="utf-8")
    for named in ("Tatoeba", "CC BY 2.0", "manythings.org/anki", "test, 2000 sentences", "## Limits", "chrF2"):
        assert named in text
    scores = ModelFolder.open(find_model("en-de")).facts()["scores"]
    assert {"validation, 1024 sentences", "test, 2000 sentences"} == {score["set"] for score in scores}
