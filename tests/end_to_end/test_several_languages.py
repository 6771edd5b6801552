"""One model of several languages: from corpora of English, German and French to all of its directions."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import multihead
from multihead.cli.main import app
from multihead.config.schema import Settings
from multihead.data.shards import Shards, read_summary
from multihead.errors import UsageError, UserError
from multihead.interop.formats import export
from multihead.interop.marian.importer import import_marian
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import prepare_corpus
from multihead.runs.train import train
from multihead.storage.model_folder import read_config
from multihead.text.target_languages import target_ids
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.translator import Translator
from tests.conftest import QUICK
from tests.unit.serve.conftest import client_of

NOUNS = {
    "en": "father mother brother teacher doctor farmer baker driver soldier student".split(),
    "de": "Vater Mutter Bruder Lehrer Arzt Bauer Bäcker Fahrer Soldat Schüler".split(),
    "fr": "père mère frère professeur médecin fermier boulanger conducteur soldat élève".split(),
}
VERBS = {
    "en": "sees hears greets thanks follows visits".split(),
    "de": "sieht hört grüßt dankt folgt besucht".split(),
    "fr": "voit écoute salue remercie suit visite".split(),
}
TARGETS = ("de", "fr")
DIRECTIONS = ("en-de", "en-fr", "de-en", "fr-en")
# Post-norm, so that Marian can express the model.
SETTINGS: Settings = {
    **QUICK,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.encoder_layers": 2,
    "model.dropout": 0.0,
    "model.vocab_size": 420,
    "data.batch_tokens": 400,
    "train.optimizer": "muon",
    "train.steps": 400,
    "train.warmup": 30,
    "train.lr_scale": 0.5,
    "train.lr_decay": "linear",
    "train.validate_every": 200,
    "train.save_every": 50,
    "train.bleu_sentences": 80,
}


def sentences(language: str) -> list[str]:
    """Return 600 sentences, of which number n means the same in every language."""
    return [" ".join(words) for words in product(NOUNS[language], VERBS[language], NOUNS[language])]


def words_of(language: str) -> set[str]:
    return {*NOUNS[language], *VERBS[language]}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files of lines, en and de, and a table of en and fr."""
    folder = tmp_path_factory.mktemp("text")
    for language in ("en", "de"):
        (folder / f"text.{language}").write_text("".join(f"{line}\n" for line in sentences(language)), encoding="utf-8")
    rows = [("en", "fr"), *zip(sentences("en"), sentences("fr"), strict=True)]
    (folder / "table.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in rows), encoding="utf-8")
    return folder


def request_of(text: Path, output: Path, **changes: object) -> TrainingRequest:
    request = TrainingRequest(
        output=output,
        source=text / "text.en",
        target=text / "text.de",
        corpora=[text / "table.tsv"],
        both_ways=True,
        preset="base",
        settings=SETTINGS,
    )
    return replace(request, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(text: Path) -> Path:
    train(request_of(text, text / "model"))
    return text / "model"


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    return multihead.load(model, engine="torch")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def share_in(language: str, texts: list[str]) -> float:
    """Return the share of words that are words of a language."""
    words = " ".join(texts).split()
    return sum(word in words_of(language) for word in words) / max(1, len(words))


# Preparing


def test_languages_come_from_names_and_headers_and_both_ways_doubles_them(model: Path) -> None:
    data = read_config(model).data
    assert data.directions == DIRECTIONS
    assert data.languages == ["en", "de"]


def test_every_source_begins_with_the_piece_of_its_target(model: Path) -> None:
    tokenizer = SubwordTokenizer.load(model / "tokenizer.json")
    language_of = {id: code for code, id in target_ids(tokenizer).items()}
    assert set(language_of.values()) == {"de", "fr", "en"}
    shards = Shards(model / "data", "train")
    for pair in range(0, len(shards), 7):
        source, target = shards[pair]
        assert share_in(language_of[source[0]], [tokenizer.decode(target.tolist())]) == 1
        assert not language_of.keys() & {*source[1:].tolist(), *target.tolist()}


def test_options_name_the_languages_of_files_whose_names_do_not(text: Path, tmp_path: Path) -> None:
    table = tmp_path / "no header.tsv"
    lines = (text / "table.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join(lines[1:]), encoding="utf-8")
    files = ["--source", text / "text.en", "--target", text / "text.de", "--corpus", table]
    languages = "--source-lang en --target-lang de --source-lang en --target-lang fr".split()
    run("prepare", *files, *languages, "--vocab-size", 420, "--output", tmp_path / "data")
    assert read_summary(tmp_path / "data").directions == ["en-de", "en-fr"]


def test_a_file_whose_sides_are_swapped_is_refused(text: Path, tmp_path: Path) -> None:
    """English and French were exchanged; the detector, learned from all corpora, notices."""
    swapped = tmp_path / "swapped.tsv"
    rows = zip(sentences("fr"), sentences("en"), strict=True)
    swapped.write_text("".join(f"{one}\t{other}\n" for one, other in rows), encoding="utf-8")
    corpora = [text / "table.tsv", swapped]
    languages = [("en", "de"), ("en", "fr"), ("en", "fr")]
    with pytest.raises(UserError, match="swapped"):
        prepare_corpus(request_of(text, tmp_path / "data", corpora=corpora, languages=languages), lambda line: None)


def test_small_directions_come_more_often(text: Path, tmp_path: Path) -> None:
    """A hundredth of the text has a tenth of the share, not a hundredth (balance 2)."""
    few = tmp_path / "few.tsv"
    rows = list(zip(sentences("en"), sentences("fr"), strict=True))[::10]
    few.write_text("en\tfr\n" + "".join(f"{one}\t{other}\n" for one, other in rows), encoding="utf-8")
    summary = prepare_corpus(request_of(text, tmp_path / "data", corpora=[few], both_ways=False), lambda line: None)
    large, small = summary.parts
    assert (large.direction, small.direction) == ("en-de", "en-fr")
    assert large.weight == 1
    assert small.weight == pytest.approx((large.pairs / small.pairs) ** 0.5)


def test_the_same_languages_in_all_corpora_make_a_model_of_one_direction(text: Path, tmp_path: Path) -> None:
    """Here the second one has nothing new at all."""
    files = {"source": [text / "text.en"] * 2, "target": [text / "text.de"] * 2, "corpora": (), "both_ways": False}
    files |= {"settings": {}, "preset": None}
    prepare_corpus(request_of(text, tmp_path / "two", **files), lambda line: None)
    tokenizer = SubwordTokenizer.load(tmp_path / "two" / "tokenizer.json")
    assert not tokenizer.reserved
    summary = json.loads((tmp_path / "two" / "corpus.json").read_text(encoding="utf-8"))
    assert not summary["settings"].keys() & {"directions", "balance"}
    assert all(not part.get("direction") for part in summary["parts"])
    assert (tmp_path / "two" / "languages.safetensors").exists()


# Training


@pytest.mark.long
def test_every_direction_is_validated(model: Path) -> None:
    lines = [json.loads(line) for line in (model / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (*_, last) = [line for line in lines if "valid_bleu" in line]
    scores = [last[f"valid_bleu.{direction}"] for direction in DIRECTIONS]
    assert last["valid_bleu"] == pytest.approx(sum(scores) / len(scores))


@pytest.mark.long
def test_the_card_and_info_list_the_score_of_every_direction(model: Path) -> None:
    card, said = (model / "README.md").read_text(encoding="utf-8"), run("info", model)
    for source, target in (direction.split("-") for direction in DIRECTIONS):
        assert f"{source} → {target}" in card
        assert re.search(rf"validation.*{source}-{target}.*BLEU", card)
        assert re.search(rf"BLEU .* validation {source}-{target}, ", said)
    assert "`>>de<<`, `>>en<<`, `>>fr<<`" in card


@pytest.mark.long
def test_interrupted_a_run_ends_with_the_same_bytes(text: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "train.steps": 12, "train.save_every": 4, "train.validate_every": 6}
    request = request_of(text, tmp_path / "run", settings=settings)
    train(request)
    again = replace(request, output=tmp_path / "again")
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    for name in ("checkpoints/step-8", "checkpoints/step-12"):
        shutil.rmtree(tmp_path / "again" / name)
    (tmp_path / "again" / "model.safetensors").unlink()
    train(again)
    for name in ("model.safetensors", "languages.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


@pytest.mark.long
def test_a_model_of_several_languages_is_fine_tuned_on_one_of_its_directions(model: Path, tmp_path: Path) -> None:
    table = tmp_path / "more.tsv"
    rows = zip(sentences("en")[:100], sentences("fr")[:100], strict=True)
    table.write_text("en\tfr\n" + "".join(f"{one}\t{other}\n" for one, other in rows), encoding="utf-8")
    settings = {**SETTINGS, "train.steps": 2, "train.base_model": str(model)}
    del settings["model.vocab_size"]
    settings = {name: value for name, value in settings.items() if not name.startswith("model.")}
    train(TrainingRequest(output=tmp_path / "run", corpora=[table], preset="base", settings=settings))
    assert read_config(tmp_path / "run").data.directions == DIRECTIONS
    tokenizer = SubwordTokenizer.load(tmp_path / "run" / "tokenizer.json")
    source, _ = Shards(tmp_path / "run" / "data", "train")[0]
    assert source[0] == target_ids(tokenizer)["fr"]


# Translating


@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_to_chooses_the_language(translator: Translator, direction: str) -> None:
    source, target = direction.split("-")
    found = [one.text for one in translator.translate(sentences(source)[::40], to=target)]
    assert share_in(target, found) > 0.9
    assert sum(one == other for one, other in zip(found, sentences(target)[::40], strict=True)) >= 6  # of 15


@pytest.mark.long
def test_the_command_line_needs_to_know_the_language(model: Path) -> None:
    assert share_in("fr", [run("translate", model, "father sees mother", "--to", "fr")]) > 0.6
    refused = CliRunner().invoke(app, ["translate", str(model), "father sees mother"])
    assert isinstance(refused.exception, UsageError)
    assert "translates into de, fr, en: choose one with --to" in str(refused.exception)
    refused = CliRunner().invoke(app, ["translate", str(model), "father sees mother", "--to", "es"])
    assert "not into es" in str(refused.exception)


@pytest.mark.long
def test_python_needs_to_know_the_language(translator: Translator) -> None:
    with pytest.raises(UsageError, match="to="):
        translator.translate("father sees mother")


@pytest.mark.long
def test_one_direction_is_evaluated(model: Path, text: Path) -> None:
    files = ["--source", text / "text.en", "--reference", text / "text.de"]
    reports = [json.loads(run("evaluate", model, *files, "--to", target, "--json", "--beam", 1)) for target in TARGETS]
    into_german, into_french = ({score["name"]: score["value"] for score in one["scores"]} for one in reports)
    assert into_german["chrF2"] > 60 > into_french["chrF2"]


@pytest.mark.long
def test_text_in_the_target_language_is_warned_of(model: Path) -> None:
    text = " ".join(sentences("fr")[0:60:20])
    result = CliRunner().invoke(app, ["translate", str(model), text, "--to", "fr", "--beam", "1"])
    assert "French" in result.stderr


# Serving


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[TestClient]:
    with client_of(translator) as client:
        yield client


def ask(client: TestClient, text: str, source: str, target: str) -> dict[str, object]:
    answer = client.post("/translate", json={"q": text, "source": source, "target": target})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


@pytest.mark.long
def test_the_server_offers_every_direction_and_those_through_english(client: TestClient) -> None:
    targets = {one["code"]: set(one["targets"]) for one in client.get("/languages").json()}
    assert targets == {"en": {"de", "fr"}, "de": {"en", "fr"}, "fr": {"en", "de"}}


@pytest.mark.long
def test_the_server_translates_through_a_third_language(client: TestClient) -> None:
    found = ask(client, "Vater sieht Mutter", "de", "fr")
    assert found["via"] == "en"
    assert share_in("fr", [str(found["translatedText"])]) > 0.6
    assert "via" not in ask(client, "father sees mother", "en", "fr")


@pytest.mark.long
def test_the_server_detects_the_language_of_a_text(client: TestClient) -> None:
    for source, target in (("de", "en"), ("fr", "en"), ("en", "de")):
        found = ask(client, " ".join(sentences(source)[0:60:20]), "auto", target)
        detected = found["detectedLanguage"]
        assert isinstance(detected, dict) and detected["language"] == source


# Exporting


@pytest.mark.long
def test_an_export_to_ctranslate2_takes_the_piece_as_its_first_token(model: Path, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    export(model, "ctranslate2", tmp_path / "out")
    tokenizer = SubwordTokenizer.load(tmp_path / "out" / "tokenizer.json")
    theirs = ctranslate2.Translator(str(tmp_path / "out"), device="cpu", intra_threads=1)
    for target in TARGETS:
        pieces = [f">>{target}<<", *tokenizer.tokens(tokenizer.encode("doctor visits baker"))]
        (found,) = theirs.translate_batch([pieces], beam_size=1)
        assert share_in(target, [tokenizer.decode([tokenizer.pieces().index(one) for one in found.hypotheses[0]])]) == 1


@pytest.mark.long
def test_an_export_to_marian_takes_the_piece_as_text(model: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    export(model, "marian", tmp_path / "marian")
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "marian")
    ours = multihead.load(model, engine="torch")
    for target in TARGETS:
        batch = tokenizer([f">>{target}<< doctor visits baker"], return_tensors="pt")
        ids = theirs.generate(input_ids=batch.input_ids, attention_mask=batch.attention_mask, num_beams=1)
        (found,) = tokenizer.batch_decode(ids, skip_special_tokens=True)
        assert found == ours.translate("doctor visits baker", to=target, beam=1).text
    card = (tmp_path / "marian" / "README.md").read_text(encoding="utf-8")
    assert ">>de<<" in card and "- fr" in card


@pytest.mark.long
def test_imported_again_a_model_has_its_directions(model: Path, tmp_path: Path) -> None:
    export(model, "marian", tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "again")
    assert read_config(tmp_path / "again").data.directions == DIRECTIONS
    one, other = (multihead.load(folder, engine="torch") for folder in (model, tmp_path / "again"))
    for source, target in (("father sees mother", "fr"), ("Vater sieht Mutter", "en")):
        assert one.translate(source, to=target, beam=1).text == other.translate(source, to=target, beam=1).text
