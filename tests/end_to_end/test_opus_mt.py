"""What people do with a model of OPUS-MT: its real configuration and vocabulary, and random weights."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from starlette.testclient import TestClient
from typer.testing import CliRunner

import multihead
from multihead.cli.main import app
from multihead.config.schema import ENGINES
from multihead.interop.formats import export
from multihead.storage.model_folder import replace_config
from multihead.text.tokenizer import SubwordTokenizer
from tests.unit.serve.conftest import client_of

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
pytestmark = pytest.mark.xdist_group("opus-mt")  # the model is made once

REAL = Path(__file__).parents[3] / "shared" / "data" / "opus-mt"
SHORT = "Hello."  # of random weights every step costs as much as of real ones
MOST_TOKENS = 12  # of an output: random weights never end one
MALAGASY = ["Salama tompoko.", "Misaotra betsaka.", "Milalao ao anaty zaridaina ny ankizy."]


def real(name: str) -> Path:
    if not (REAL / name).is_dir():
        pytest.skip("the files of OPUS-MT are not on this machine")
    return REAL / name


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def their_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("opus-mt") / "en-mg"
    shutil.copytree(real("en-mg"), folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    torch.manual_seed(1)
    transformers.MarianMTModel(transformers.MarianConfig.from_pretrained(folder)).save_pretrained(folder)
    yield folder
    shutil.rmtree(folder.parent)  # hundreds of megabytes


@pytest.fixture(scope="module")
def imported(their_folder: Path) -> Path:
    """The model as `multihead import` makes it, but for the length of its outputs."""
    folder = their_folder.with_name("model")
    run("import", their_folder, "--output", folder)
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    document["model"]["max_len"], document["data"]["max_length"] = MOST_TOKENS, MOST_TOKENS - 1
    replace_config(folder, json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def client(imported: Path) -> TestClient:
    return client_of(multihead.load(imported, engine="torch"))


def test_info_knows_the_languages(imported: Path) -> None:
    assert "en to mg" in run("info", imported)


def test_its_text_is_left_to_its_own_normalizer(imported: Path) -> None:
    assert json.loads((imported / "config.json").read_text(encoding="utf-8"))["data"]["unicode"] == "none"


def test_every_engine_translates_alike(imported: Path) -> None:
    said = {engine: run("translate", imported, SHORT, "--engine", engine, "--beam", 1) for engine in ENGINES}
    assert len(set(said.values())) == 1
    assert said["torch"].strip()


def test_json_has_pieces_and_an_alignment_of_words(imported: Path) -> None:
    found = json.loads(run("translate", imported, "Hello world.", "--json", "--engine", "torch", "--beam", 1))
    assert found["source_tokens"] == ["▁Hello", "▁world", "."]
    assert {source for source, _, _ in found["alignment"]} <= {0, 1}
    assert [target for _, target, _ in found["alignment"]] == [*range(len(found["alignment"]))]
    assert found["alignment"]


def test_inspect_writes_a_page_whose_words_are_those_of_the_text(imported: Path, tmp_path: Path) -> None:
    run("inspect", imported, "Hello world.", "--output", tmp_path / "page.html", "--beam", 1)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"tokens":{"source":[" Hello"," world",".",' in page
    assert "\\u2581" not in page  # how SentencePiece writes a space
    assert '"alignment":{"source":["Hello","world."]' in page


def test_inspect_writes_a_picture(imported: Path, tmp_path: Path) -> None:
    run("inspect", imported, SHORT, "--output", tmp_path / "picture.png", "--beam", 1)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_evaluate_scores_it(imported: Path, tmp_path: Path) -> None:
    for name, text in (("en", "Hello.\nYes.\n"), ("mg", "Salama.\nEny.\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    said = run("evaluate", imported, "--source", tmp_path / "en", "--reference", tmp_path / "mg", "--beam", 1)
    assert "2 sentences" in said


def test_the_server_shows_its_attention(client: TestClient) -> None:
    answer = client.post("/attention", json={"q": "Hello world.", "source": "en", "target": "mg"})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["tokens"]["source"][:3] == [" Hello", " world", "."]
    assert found["alignment"]["source"] == ["Hello", "world."]
    assert found["alignment"]["target"] == "".join(found["tokens"]["target"][1:]).split()
    assert found["translation"].startswith(found["alignment"]["target"][0])


def test_the_server_keeps_tags(client: TestClient) -> None:
    fields = {"q": "Hello <b>world</b>.", "source": "en", "target": "mg", "format": "html"}
    answer = client.post("/translate", json=fields)
    assert answer.status_code == 200, answer.text
    said = answer.json()["translatedText"]
    assert (said.count("<b>"), said.count("</b>")) == (1, 1)


def test_it_goes_out_to_marian_as_it_came(imported: Path, their_folder: Path, tmp_path: Path) -> None:
    export(imported, "marian", tmp_path / "marian")
    theirs, again = (load_file(folder / "model.safetensors") for folder in (their_folder, tmp_path / "marian"))
    assert all(torch.equal(tensor, again[name]) for name, tensor in theirs.items())
    for name in ("vocab.json", "source.spm", "target.spm"):
        assert (tmp_path / "marian" / name).read_bytes() == (their_folder / name).read_bytes()
    shutil.rmtree(tmp_path / "marian")


def test_it_goes_out_to_ctranslate2(imported: Path, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    export(imported, "ctranslate2", tmp_path / "out", "int8")
    tokenizer = SubwordTokenizer.load(tmp_path / "out" / "tokenizer.json")
    translator = ctranslate2.Translator(str(tmp_path / "out"), device="cpu", intra_threads=1)
    pieces = tokenizer.tokens(tokenizer.encode(SHORT))
    (result,) = translator.translate_batch([pieces], beam_size=1, max_decoding_length=5)
    assert len(result.hypotheses[0]) == 5
    shutil.rmtree(tmp_path / "out")


def test_it_goes_out_to_onnx(imported: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    export(imported, "onnx", tmp_path / "out")
    encoder = onnxruntime.InferenceSession(tmp_path / "out" / "encoder.onnx")
    mask, keys, *_ = encoder.run(None, {"source_ids": torch.tensor([[7, 8, 3]]).numpy()})
    assert mask.tolist() == [[True, True, True]]
    assert keys.shape == (1, 8, 3, 64)
    shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("name", ["en-mg", "en-pt"])
def test_a_source_is_cut_as_sentencepiece_cuts_it(name: str) -> None:
    tokenizer, folder = tokenizer_of(name), real(name)
    source = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    for text in ("Hello world.", "The government announced it on Wednesday, didn't it?", "ﬁve  of 1,234"):
        assert tokenizer.tokens(tokenizer.encode(text)) == source.encode(text, out_type=str)
        assert "".join(tokenizer.readable(tokenizer.encode(text))) == source.normalize(text).replace("▁", " ")


def test_a_translation_is_cut_as_sentencepiece_cuts_it() -> None:
    """By the pieces of target.spm, not by those of the source, which would take twice as many."""
    tokenizer = tokenizer_of("en-mg")
    target = sentencepiece.SentencePieceProcessor(model_file=str(real("en-mg") / "target.spm"))
    for text in MALAGASY:
        assert tokenizer.tokens(tokenizer.encode_target(text)) == target.encode(text, out_type=str)


def tokenizer_of(name: str) -> SubwordTokenizer:
    from multihead.interop.marian.folder import MarianFolder
    from multihead.interop.marian.format import map_vocabulary, read_config
    from multihead.interop.marian.vocabulary import read_vocabulary

    folder = MarianFolder(real(name))
    vocabulary = read_vocabulary(folder)
    return vocabulary.tokenizer(map_vocabulary(read_config(folder), vocabulary).pieces)
