"""Every script from raw text to a score: prepared, trained, translated and evaluated in both directions."""

import json
import unicodedata
from pathlib import Path

import pytest
from typer.testing import CliRunner

import multihead
from multihead.cli.main import app
from multihead.config.schema import Settings
from multihead.data.shards import read_summary
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from tests import scripts
from tests.conftest import QUICK

pytestmark = pytest.mark.long  # seconds for each script

CODES = {
    "Burmese": "my",
    "Khmer": "km",
    "Tamil": "ta",
    "Malayalam": "ml",
    "Georgian": "ka",
    "Thai": "th",
    "Lao": "lo",
    "Hindi": "hi",
    "Amharic": "am",
    "Armenian": "hy",
    "Arabic": "ar",
    "Hebrew": "he",
    "Greek": "el",
    "Russian": "ru",
    "Chinese": "zh",
    "Japanese": "ja",
    "Korean": "ko",
    "Tibetan": "bo",
    "Sinhala": "si",
    "Bengali": "bn",
    "Telugu": "te",
    "Kannada": "kn",
}
BY_CHARACTERS = {"my", "km", "th", "lo", "ja", "ko", "bo"}
WITHOUT_SENTENCE_MARKS = {"th", "bo"}  # the Tibetan shad ends clauses as well
SETTINGS: Settings = {
    **QUICK,
    "model.max_len": 640,
    "model.vocab_size": 500,
    "data.max_length": 600,
    "data.batch_tokens": 800,
    "train.steps": 1,
    "train.bleu_sentences": 0,
}


def test_there_are_twenty_scripts_and_each_has_a_code() -> None:
    assert CODES.keys() == scripts.TRANSLATIONS.keys()
    names = {unicodedata.name(text[len(text) // 2]).split()[0] for text in map("".join, map(scripts.lines_of, CODES))}
    assert len(names) >= 20


@pytest.mark.parametrize("language", CODES)
def test_nothing_is_lost_on_the_way(language: str, tmp_path: Path) -> None:
    code, pairs = CODES[language], scripts.pairs_with(language)
    files = [tmp_path / f"text.{name}" for name in ("en", code)]
    for file, lines in zip(files, zip(*pairs, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    request = TrainingRequest(
        output=tmp_path / "run", source=files[0], target=files[1], both_ways=True, preset="base", settings=SETTINGS
    )
    train(request)

    cleaning = read_summary(tmp_path / "run" / "data").cleaning
    assert cleaning["kept"] == cleaning["read"] == len(pairs)

    model = multihead.load(tmp_path / "run", engine="torch").into("en", code)
    first, second = scripts.lines_of(language)[1:3]
    composed, decomposed = (unicodedata.normalize(form, first) for form in ("NFC", "NFD"))
    assert model.translate(composed, beam=1).text == model.translate(decomposed, beam=1).text
    gap = "" if language in ("Chinese", "Japanese") else " "
    sentences, _ = model.segmenter.sentences(f"{first}{gap}{second}", split=True)
    assert sentences == ([f"{first} {second}"] if code in WITHOUT_SENTENCE_MARKS else [first, second])

    short = [tmp_path / f"short.{name}" for name in ("en", code)]
    for file, texts in zip(short, (scripts.ENGLISH, scripts.lines_of(language)), strict=True):
        file.write_text("".join(f"{text}\n" for text in texts[1:4]), encoding="utf-8")
    command = ["evaluate", tmp_path / "run", "--source", short[0], "--reference", short[1], "--to", code, "--json"]
    result = CliRunner().invoke(app, [*map(str, command), "--beam", "1"])
    assert result.exit_code == 0, result.output
    signature = json.loads(result.stdout)["scores"][0]["signature"]
    expected = "char" if code in BY_CHARACTERS else "zh" if code == "zh" else "13a"
    assert f"tok:{expected}|" in signature
