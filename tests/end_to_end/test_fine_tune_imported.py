"""An OPUS-MT model is fine-tuned on the user's own text and exported back to the format that it came from."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from multihead.config.schema import SearchConfig, Settings
from multihead.data.shards import Shards
from multihead.errors import UsageError, UserError
from multihead.interop.formats import describe_export_support, export
from multihead.interop.marian.folder import MarianFolder
from multihead.interop.marian.format import map_vocabulary, read_config
from multihead.interop.marian.importer import IMPOSSIBLE, import_marian
from multihead.interop.marian.vocabulary import read_vocabulary
from multihead.model.weights import load_model, weights_of
from multihead.runs.publish import publish_average
from multihead.runs.request import TrainingRequest
from multihead.runs.stages import MoreText, train_in_stages
from multihead.runs.train import train
from multihead.storage.arrays import read_arrays
from multihead.text.target_languages import target_ids
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, TARGET_FILE, SubwordTokenizer
from multihead.translation.search.beam import search
from multihead.translation.translator import load
from tests.marian import SENTENCES, TRANSLATIONS, TheirModel, opus_folder

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

REAL = Path(__file__).parents[3] / "shared" / "data"
SETTINGS: Settings = {
    "train.steps": 24,
    "train.lr_scale": 0.03,
    "train.warmup": 5,
    "train.save_every": 8,
    "train.validate_every": 8,
    "train.precision": "float32",
    "data.max_length": 64,
    "data.batch_tokens": 512,
}
UNEQUAL: dict[str, Any] = {
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 32,
}


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> TheirModel:
    return opus_folder(tmp_path_factory.mktemp("opus") / "opus")


@pytest.fixture(scope="module")
def imported(opus: TheirModel) -> Path:
    import_marian(opus.folder, opus.folder.with_name("model"))
    return opus.folder.with_name("model")


@pytest.fixture(scope="module")
def request_(imported: Path) -> TrainingRequest:
    source, target = imported.with_name("text.en"), imported.with_name("text.de")
    source.write_text("".join(f"{text}\n" for text in many(SENTENCES)), encoding="utf-8")
    target.write_text("".join(f"{text}\n" for text in many(TRANSLATIONS)), encoding="utf-8")
    settings = {**SETTINGS, "train.base_model": str(imported)}
    return TrainingRequest(output=imported.with_name("run"), source=source, target=target, settings=settings)


@pytest.fixture(scope="module")
def unequal(request_: TrainingRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a model with separate vocabularies and stacks of different sizes: as imported, and fine-tuned."""
    folder = tmp_path_factory.mktemp("unequal")
    import_marian(opus_folder(folder / "opus", n_target=70, **UNEQUAL).folder, folder / "model")
    settings = {**SETTINGS, "train.base_model": str(folder / "model")}
    train(replace(request_, output=folder / "run", settings=settings))
    return folder / "model", folder / "run"


def many(texts: list[str]) -> list[str]:
    """Return pairs of sentences, which differ from each other and belong together on both sides."""
    return [f"{first} {second}" for first in texts for second in texts]


@pytest.fixture(scope="module")
def fine_tuned(request_: TrainingRequest) -> Path:
    train(request_)
    return request_.output


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["valid_loss"] for line in lines if "valid_loss" in line]


def test_it_learns_the_new_text(fine_tuned: Path) -> None:
    found = losses(fine_tuned)
    assert found[-1] < found[0] - 0.1  # nats per token; random weights still translate each sentence differently


def test_the_text_is_read_as_the_models_own_normalization_has_it(fine_tuned: Path) -> None:
    assert load_model(fine_tuned)[2].data.unicode == "none"


def test_it_is_trained_by_adam_at_a_low_rate(fine_tuned: Path, request_: TrainingRequest) -> None:
    assert load_model(fine_tuned)[2].train.optimizer == "adam"


def test_targets_are_split_by_target_spm(imported: Path, opus: TheirModel) -> None:
    tokenizer = load_model(imported)[1]
    theirs = [opus.tokenizer(text_target=text).input_ids[:-1] for text in TRANSLATIONS]
    assert [[opus.places()[id] for id in ids] for ids in tokenizer.encode_target_batch(TRANSLATIONS)] == theirs
    assert [tokenizer.encode_target(text) for text in TRANSLATIONS] == tokenizer.encode_target_batch(TRANSLATIONS)


def test_the_published_model_keeps_both_tokenizers_and_the_original_vocabulary(
    fine_tuned: Path, imported: Path
) -> None:
    for name in ("tokenizer.json", TARGET_FILE, "marian/source.spm", "marian/target.spm", "marian/vocab.json"):
        assert (fine_tuned / name).read_bytes() == (imported / name).read_bytes(), name


@torch.inference_mode()
def test_exported_to_marian_it_translates_the_same_in_transformers(fine_tuned: Path, tmp_path: Path) -> None:
    export(fine_tuned, "marian", tmp_path / "marian")
    theirs: Any = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "marian")
    exported = TheirModel(theirs, tokenizer, tmp_path / "marian")
    model, ours, _ = load_model(fine_tuned)
    for text in SENTENCES:
        source = torch.tensor([[*ours.encode(text), EOS_ID]])
        (found,) = search([model], source, SearchConfig(beam=4, alpha=0.0, max_extra=8))
        limit = source.size(1) + 8
        assert ours.decode(found.best(1)[0].tokens) == exported.translate(text, beam=4, limit=limit)


def test_the_start_symbol_is_trained_and_exported_as_the_padding_of_marian(fine_tuned: Path, tmp_path: Path) -> None:
    weights = weights_of(load_model(fine_tuned)[0])
    embedding = weights["source_embedding.weight"]  # shared
    assert not torch.equal(embedding[BOS_ID], embedding[PAD_ID])
    assert weights["output.bias"][BOS_ID] > -100  # label smoothing of an impossible token would dwarf the loss
    export(fine_tuned, "marian", tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "again")
    again = weights_of(load_model(tmp_path / "again")[0])["source_embedding.weight"]
    assert torch.equal(again[BOS_ID], embedding[BOS_ID])


def test_interrupted_it_ends_with_the_same_bytes(fine_tuned: Path, request_: TrainingRequest, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fine_tuned, run)
    for name in ("checkpoints/step-16", "checkpoints/step-24"):
        shutil.rmtree(run / name)
    for name in ("model.safetensors", "tokenizer.json", TARGET_FILE):
        (run / name).unlink()
    train(replace(request_, output=run))
    for name in ("model.safetensors", "tokenizer.json", TARGET_FILE):
        assert (run / name).read_bytes() == (fine_tuned / name).read_bytes(), name


def test_the_padding_of_smaller_layers_stays_zero(unequal: tuple[Path, Path]) -> None:
    before, after = (weights_of(load_model(folder)[0]) for folder in unequal)
    padded = [name for name in before if ".w_" in name and not before[name].all()]
    assert len(padded) == 2 * (7 + 3) + 2 * 14  # weights and biases: one head is narrower here, or missing there
    for name in padded:
        zero = before[name] == 0
        assert not after[name][zero].any(), name
        assert (after[name][~zero] != before[name][~zero]).any(), name


@torch.inference_mode()
def test_separate_vocabularies_and_unequal_stacks_are_exported_as_they_were(
    unequal: tuple[Path, Path], tmp_path: Path
) -> None:
    export(unequal[1], "marian", tmp_path / "marian")
    theirs: Any = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    assert {name: getattr(theirs.config, name) for name in UNEQUAL} == UNEQUAL
    assert (theirs.config.vocab_size, theirs.config.decoder_vocab_size) == (80, 70)
    exported = TheirModel(theirs, transformers.MarianTokenizer.from_pretrained(tmp_path / "marian"), tmp_path)
    model, ours, _ = load_model(unequal[1])
    said = []
    for text in SENTENCES:
        source = torch.tensor([[*ours.encode(text), EOS_ID]])
        (found,) = search([model], source, SearchConfig(beam=1, alpha=0.0, max_extra=8))
        said.append(ours.decode(found.best(1)[0].tokens))
        assert said[-1] == exported.translate(text, beam=1, limit=source.size(1) + 8)
    assert len(set(said)) > 5


def test_separate_vocabularies_learn_the_new_text(unequal: tuple[Path, Path]) -> None:
    found = losses(unequal[1])
    assert found[-1] < found[0] - 0.1
    assert found[0] < 20  # nats per token; a piece that cannot be generated has no part in it
    shards = Shards(unequal[1] / "data", "train")
    pieces = {int(id) for pair in range(len(shards)) for id in shards[pair][1]}
    bias = weights_of(load_model(unequal[0])[0])["output.bias"]
    assert all(bias[id] > -100 for id in pieces)


def test_pieces_of_the_source_alone_are_trained_and_then_impossible_again(
    unequal: tuple[Path, Path], tmp_path: Path
) -> None:
    """Label smoothing would give them a few percent of every sample."""
    before, after = (weights_of(load_model(folder)[0])["output.bias"] for folder in unequal)
    impossible = [id for id, bias in enumerate(before.tolist()) if bias == IMPOSSIBLE and id != BOS_ID]
    publish_average(unequal[1], tmp_path / "average", 2)
    average = weights_of(load_model(tmp_path / "average")[0])["output.bias"]
    assert (tmp_path / "average" / "marian" / "target_vocab.json").exists()
    checkpoint = read_arrays(unequal[1] / "checkpoints" / "step-24" / "model.safetensors")["output.bias"]
    assert len(impossible) == 45
    for id in impossible:
        assert after[id] == average[id] == IMPOSSIBLE
        assert -100 < checkpoint[id] < 0


def test_every_engine_translates_separate_vocabularies_alike(unequal: tuple[Path, Path]) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    for folder in unequal:
        torch_, library = (load(folder, engine=engine) for engine in ("torch", "ctranslate2:float32"))
        ours, theirs = (model.translate(SENTENCES, beam=1, max_extra=8) for model in (torch_, library))
        assert [one.text for one in ours] == [one.text for one in theirs]
        assert len({one.text for one in ours}) > 5


def test_a_run_from_unequal_stacks_says_that_it_can_be_exported_to_marian(unequal: tuple[Path, Path]) -> None:
    config = load_model(unequal[1])[2].model
    assert "marian" in describe_export_support(config, unequal[1]).partition("(")[0]
    assert "not marian: heads" in describe_export_support(config)


def test_a_folder_of_the_original_that_does_not_fit_is_refused(
    unequal: tuple[Path, Path], request_: TrainingRequest, tmp_path: Path
) -> None:
    shutil.copytree(unequal[1], tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").unlink(missing_ok=True)
    path = tmp_path / "run" / "marian" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "decoder_ffn_dim": 64}))
    with pytest.raises(UserError, match="does not have the vocabulary or the shape of the model"):
        export(tmp_path / "run", "marian", tmp_path / "marian")
    settings = {**SETTINGS, "train.base_model": str(tmp_path / "run")}
    with pytest.raises(UserError, match="does not have the vocabulary or the shape of the model"):
        train(replace(request_, output=tmp_path / "again", settings=settings))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_back_translation_for_it_needs_a_model_that_translates_back(request_: TrainingRequest) -> None:
    more = MoreText(monolingual=[Path(str(request_.target))])
    with pytest.raises(UsageError, match="add --reverse MODEL, such as hf:Helsinki-NLP/opus-mt-de-en"):
        train_in_stages(replace(request_, output=request_.output.with_name("more")), more)


def test_a_model_of_several_target_languages_is_trained_with_the_piece_of_the_language(tmp_path: Path) -> None:
    opus = opus_folder(tmp_path / "opus", codes=[">>deu<<", ">>nld<<"])
    settings = opus.folder / "tokenizer_config.json"
    settings.write_text('{"source_lang": "eng", "target_lang": "gmw"}', encoding="utf-8")
    import_marian(opus.folder, tmp_path / "model")
    assert load_model(tmp_path / "model")[2].data.directions == ("eng-deu", "eng-nld")
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("".join(f"{text}\n" for text in many(SENTENCES)), encoding="utf-8")
    target.write_text("".join(f"{text}\n" for text in many(TRANSLATIONS)), encoding="utf-8")
    request = TrainingRequest(
        output=tmp_path / "run",
        source=source,
        target=target,
        settings={**SETTINGS, "train.steps": 2, "train.base_model": str(tmp_path / "model")},
    )
    train(request)
    german = target_ids(load_model(tmp_path / "run")[1])["deu"]
    shards = Shards(tmp_path / "run" / "data", "train")
    assert {int(shards[pair][0][0]) for pair in range(len(shards))} == {german}
    export(tmp_path / "run", "marian", tmp_path / "marian")
    assert (tmp_path / "marian" / "tokenizer_config.json").read_bytes() == settings.read_bytes()


def test_an_import_of_an_older_version_is_refused_with_the_remedy(
    imported: Path, request_: TrainingRequest, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(imported, old)
    (old / TARGET_FILE).unlink()
    (old / "SHA256SUMS").unlink()
    settings = {**request_.settings, "train.base_model": str(old)}
    with pytest.raises(UserError, match="import it again"):
        train(replace(request_, output=tmp_path / "run", settings=settings))


@pytest.mark.parametrize(("name", "language"), [("en-mg", "fr"), ("en-pt", "es")])
def test_ids_of_targets_are_those_of_transformers_with_real_vocabularies(name: str, language: str) -> None:
    """On real sentences of a related language: target.spm has to split unfamiliar words as well."""
    folder = REAL / "opus-mt" / name
    if not folder.is_dir():
        pytest.skip("the files of OPUS-MT are not on this machine")
    tokenizer, places = tokenizer_of(folder)
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    for text in real_sentences(language):
        expected = theirs(text_target=text).input_ids[:-1]
        assert [places[id] for id in tokenizer.encode_target(text)] == expected, text


def tokenizer_of(folder: Path) -> tuple[SubwordTokenizer, list[int]]:
    files = MarianFolder(folder)
    vocabulary = read_vocabulary(files)
    mapping = map_vocabulary(read_config(files), vocabulary)
    return vocabulary.tokenizer(mapping.pieces), mapping.target_ids


def real_sentences(language: str) -> list[str]:
    from multihead.text.lines import read_lines

    lines = [line.decode() for line in read_lines(REAL / "newstest" / f"valid.{language}.gz")]
    return random.Random(1).sample(lines, 1000)
