"""Hugging Face Marian and Multihead: one model under two names, with the same numbers and the same translations."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from multihead.bench.translation import _ids_by_piece
from multihead.config.presets import PRESETS
from multihead.config.resolve import configure
from multihead.config.schema import RunConfig, SearchConfig
from multihead.errors import UserError
from multihead.inspection.page import page_data, write_page
from multihead.inspection.picture import write_picture
from multihead.interop.formats import export
from multihead.interop.marian.exporter import export_marian, unsupported_by_marian
from multihead.interop.marian.importer import import_marian
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model, weights_of
from multihead.text.pieces import word_texts
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, SubwordTokenizer
from multihead.translation.search.beam import search
from multihead.translation.translator import load
from tests.conftest import store_model, tiny_shape
from tests.marian import SENTENCES, TRANSLATIONS, TheirModel, lively, opus_folder

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

Shape = dict[str, Any]

SHAPES: list[Shape] = [
    {"activation_function": "swish"},  # as OPUS-MT
    {"activation_function": "relu"},
    {"activation_function": "gelu", "encoder_layers": 3, "decoder_layers": 1},
    {"share_encoder_decoder_embeddings": False},
    {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    {"tie_word_embeddings": False},
    {"scale_embedding": False},
    {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 3},  # a sine more than cosines
    {"d_model": 22, "encoder_attention_heads": 1, "decoder_attention_heads": 1},
    {"encoder_ffn_dim": 7, "decoder_ffn_dim": 7},
    {"encoder_attention_heads": 4, "decoder_attention_heads": 1, "encoder_ffn_dim": 9},
    {"encoder_attention_heads": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 40},  # not a power of 4
    {"n_target": 70},
    {"n_target": 80, "share_encoder_decoder_embeddings": True},  # row by row
    {"n_target": 86, "tie_word_embeddings": False},
    {"n_target": 70, "scale_embedding": False, "encoder_attention_heads": 8, "encoder_ffn_dim": 30},
]


def named(shape: Shape) -> str:
    return "-".join(f"{name}={value}" for name, value in shape.items() if "decoder" not in name)


@pytest.fixture(params=SHAPES, ids=named)
def opus(request: pytest.FixtureRequest, tmp_path: Path) -> TheirModel:
    return opus_folder(tmp_path / "opus-mt-en-de", **request.param)


def imported(folder: Path, output: Path) -> tuple[Transformer, SubwordTokenizer, RunConfig]:
    import_marian(folder, output)
    return load_model(output)


def our_ids(tokenizer: SubwordTokenizer, texts: list[str]) -> list[list[int]]:
    return [[*ids, EOS_ID] for ids in tokenizer.encode_batch(texts)]


def padded(rows: list[list[int]], pad_id: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows])


# In


@torch.inference_mode()
def test_an_imported_model_has_the_same_logits(opus: TheirModel, tmp_path: Path) -> None:
    """Over 100 random sentences: to the same ids, once they are put in order, the same logits."""
    model, _, _ = imported(opus.folder, tmp_path / "model")
    rng, theirs, of_target = random.Random(1), opus.places(), opus.target_places()
    for _ in range(100):
        source = [rng.choice([id for id in theirs if id > EOS_ID]) for _ in range(rng.randint(1, 12))]
        target = [rng.choice([id for id in of_target if id > EOS_ID]) for _ in range(rng.randint(1, 12))]
        ours = model(torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *target]]))[0]
        logits = opus.model(
            input_ids=torch.tensor([[theirs[id] for id in [*source, EOS_ID]]]),
            decoder_input_ids=torch.tensor([[of_target[id] for id in [BOS_ID, *target]]]),
        ).logits[0]
        can_be_said = [id for id in of_target if id != BOS_ID]  # which Marian has no word for
        expected = logits[:, [of_target[id] for id in can_be_said]]
        torch.testing.assert_close(ours[:, can_be_said], expected, atol=1e-4, rtol=0)
        cannot_be_said = [id for id in range(ours.size(1)) if id not in can_be_said]
        assert BOS_ID in cannot_be_said
        assert (ours[:, cannot_be_said] < -1e8).all()


@pytest.mark.parametrize("beam", [1, 4])
def test_an_imported_model_translates_as_generate_does(opus: TheirModel, tmp_path: Path, beam: int) -> None:
    """From text to text, through both tokenizers; without length penalty, of which each has its own."""
    model, tokenizer, _ = imported(opus.folder, tmp_path / "model")
    source = padded(our_ids(tokenizer, SENTENCES), PAD_ID)
    found = search([model], source, SearchConfig(beam=beam, alpha=0.0, max_extra=8))
    ours = [tokenizer.decode(one.best(1)[0].tokens) for one in found]
    limits = (source != PAD_ID).sum(dim=1) + 8
    assert ours == [opus.translate(text, beam, limit) for text, limit in zip(SENTENCES, limits.tolist(), strict=True)]
    assert len(set(ours)) > 5


@pytest.mark.parametrize("n_target", [0, 70])
def test_texts_are_cut_as_sentencepiece_cuts_them(tmp_path: Path, n_target: int) -> None:
    opus = opus_folder(tmp_path / "opus", n_target=n_target)
    _, tokenizer, _ = imported(opus.folder, tmp_path / "model")
    odd = ["  two  spaces ", "", "Ａ ﬁ ½", "Straße", "日本 and ß", "tab\there", "…", "a\u00a0b", "don't-do; it!"]  # noqa: RUF001
    for text in SENTENCES + odd:
        theirs = opus.tokenizer(text).input_ids[:-1]
        assert [opus.places()[id] for id in tokenizer.encode(text)] == theirs, text
    for text in TRANSLATIONS + odd if n_target else TRANSLATIONS:
        theirs = opus.tokenizer(text_target=text).input_ids[:-1]
        assert [opus.target_places()[id] for id in tokenizer.encode_target(text)] == theirs, text


def test_control_symbols_in_a_text_are_text(tmp_path: Path) -> None:
    _, tokenizer, _ = imported(opus_folder(tmp_path / "opus").folder, tmp_path / "model")
    for text in ("</s>", "a <pad> b", "<s><unk>", "a</s>b"):
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(tokenizer.encode(text)), text


def test_a_language_code_is_one_piece(tmp_path: Path) -> None:
    opus = opus_folder(tmp_path / "opus", codes=[">>deu<<", ">>nld<<"])
    _, tokenizer, _ = imported(opus.folder, tmp_path / "model")
    ids = tokenizer.encode(">>nld<< A man rides a bike.")
    assert [opus.places()[id] for id in ids] == opus.tokenizer(">>nld<< A man rides a bike.").input_ids[:-1]
    assert tokenizer.tokens(ids)[0] == ">>nld<<"


def test_pieces_of_an_imported_model_read_as_its_text(tmp_path: Path) -> None:
    _, tokenizer, _ = imported(opus_folder(tmp_path / "opus").folder, tmp_path / "model")
    for text in SENTENCES:
        ids = tokenizer.encode(text)
        assert "".join(tokenizer.readable(ids)) == f" {text}"
        assert word_texts(tokenizer.readable(ids)) == text.split(" ")
        assert sum(tokenizer.word_starts(ids)) == len(text.split(" "))


def test_a_target_is_cut_into_the_pieces_of_target_spm(tmp_path: Path) -> None:
    opus = opus_folder(tmp_path / "opus")
    _, tokenizer, _ = imported(opus.folder, tmp_path / "model")
    for text in TRANSLATIONS:
        ids = tokenizer.encode_target(text)
        assert UNK_ID not in ids
        assert tokenizer.decode(ids) == text
        assert len(ids) <= len(tokenizer.encode(text))


@pytest.mark.parametrize("n_target", [0, 70])
def test_the_benchmark_knows_every_piece_that_an_export_of_an_imported_model_says(
    tmp_path: Path, n_target: int
) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    import_marian(opus_folder(tmp_path / "opus", n_target=n_target).folder, tmp_path / "model")
    export(tmp_path / "model", "ctranslate2", tmp_path / "export")
    said = json.loads((tmp_path / "export" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = _ids_by_piece(SubwordTokenizer.load(tmp_path / "model" / "tokenizer.json"))
    assert [ids[piece] for piece in said] == [*range(len(said))]


def test_what_an_imported_model_attends_to_can_be_shown(tmp_path: Path) -> None:
    import_marian(opus_folder(tmp_path / "opus").folder, tmp_path / "model")
    maps = load(tmp_path / "model", engine="torch").attention("The old house is empty.", max_extra=3)
    assert page_data(maps)["alignment"]["source"] == ["The", "old", "house", "is", "empty."]
    for write, name in ((write_page, "page.html"), (write_picture, "picture.png")):
        write(maps, tmp_path / name, source="", translation="", model_name="")
        assert (tmp_path / name).stat().st_size > 10_000


def test_exported_again_it_is_what_it_was(opus: TheirModel, tmp_path: Path) -> None:
    """Every tensor bit for bit and every file of the vocabulary, unless something had to be multiplied by a root."""
    imported(opus.folder, tmp_path / "model")
    export(tmp_path / "model", "marian", tmp_path / "again")
    again = transformers.MarianMTModel.from_pretrained(tmp_path / "again").eval()
    ids = torch.tensor([[5, 6, 7, opus.eos_id]])
    with torch.inference_mode():
        expected = opus.model(input_ids=ids, decoder_input_ids=ids).logits
        torch.testing.assert_close(again(input_ids=ids, decoder_input_ids=ids).logits, expected, atol=1e-5, rtol=0)
    theirs, config = opus.model.state_dict(), opus.model.config
    for name, tensor in again.state_dict().items():
        of_queries = {config.encoder_attention_heads, config.decoder_attention_heads} == {2, 4} and "q_proj" in name
        if config.scale_embedding or "embed_tokens" not in name:
            torch.testing.assert_close(tensor, theirs[name], rtol=3e-7 if of_queries else 0, atol=0, msg=name)
    for name in ("vocab.json", "target_vocab.json", "source.spm", "target.spm"):
        if (opus.folder / name).exists():
            assert (tmp_path / "again" / name).read_bytes() == (opus.folder / name).read_bytes()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    for side in ("text", "text_target"):
        assert tokenizer(**{side: SENTENCES}).input_ids == opus.tokenizer(**{side: SENTENCES}).input_ids
    for text in SENTENCES[:3]:
        exported = TheirModel(again, tokenizer, tmp_path / "again")
        assert exported.translate(text, beam=4, limit=12) == opus.translate(text, beam=4, limit=12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_too(tmp_path: Path, dtype: torch.dtype) -> None:
    opus = opus_folder(tmp_path / "opus", dtype=dtype)
    model, _, _ = imported(opus.folder, tmp_path / "model")
    assert {weight.dtype for weight in weights_of(model).values()} == {torch.float32}


def test_a_stored_table_of_positions_has_to_be_ours(tmp_path: Path) -> None:
    name = "model.encoder.embed_positions.weight"
    opus = opus_folder(tmp_path / "opus", stored=[name])
    imported(opus.folder, tmp_path / "model")
    opus = opus_folder(tmp_path / "learned", stored=[name], change=lambda tensors: tensors[name].add_(0.1))
    with pytest.raises(UserError, match="are not the sinusoids"):
        import_marian(opus.folder, tmp_path / "other")


# Out

OURS: list[Shape] = [
    {"d_model": 12, "n_heads": 3, "d_k": 4, "d_v": 4},
    {"d_model": 12, "n_heads": 3, "d_k": 2, "d_v": 4},  # row B of Table 3
    {"d_model": 12, "n_heads": 3, "d_k": 4, "d_v": 4, "tie_embeddings": "target", "activation": "gelu"},
    {
        "d_model": 12,
        "n_heads": 3,
        "d_k": 4,
        "d_v": 4,
        "tie_embeddings": "none",
        "attention_bias": True,
        "output_bias": True,
    },
    {"d_model": 15, "n_heads": 3, "d_k": 5, "d_v": 5, "activation": "swish", "encoder_layers": 1},
]
TOKENIZER = SubwordTokenizer.learn(SENTENCES * 3, 300)


def our_model(**shape: Any) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(tiny_shape(vocab_size=TOKENIZER.vocab_size, max_len=128, **shape)).eval()
    lively(list(model.parameters()))
    return model


@torch.inference_mode()
@pytest.mark.parametrize("shape", OURS, ids=lambda shape: "-".join(map(str, shape.values())))
def test_an_exported_model_is_the_same_in_transformers(shape: Shape, tmp_path: Path) -> None:
    model = our_model(**shape)
    store_model(tmp_path / "model", model, TOKENIZER)
    export(tmp_path / "model", "marian", tmp_path / "marian")
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "marian")
    batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    source = padded(our_ids(TOKENIZER, SENTENCES), PAD_ID)
    assert torch.equal(batch.input_ids, source)
    target = torch.randint(4, TOKENIZER.vocab_size, (len(SENTENCES), 9))
    target[:, 0] = BOS_ID
    logits = theirs(input_ids=source, attention_mask=batch.attention_mask, decoder_input_ids=target).logits
    torch.testing.assert_close(logits, model(source, target), atol=1e-4, rtol=0)
    for beam in (1, 4):
        found = search([model], source, SearchConfig(beam=beam, alpha=0.0, max_extra=8))
        ours = [TOKENIZER.decode(one.best(1)[0].tokens) for one in found]
        limits = (source != PAD_ID).sum(dim=1) + 8
        again = TheirModel(theirs, tokenizer, tmp_path / "marian")
        expected = [again.translate(text, beam, limit) for text, limit in zip(SENTENCES, limits.tolist(), strict=True)]
        assert ours == expected
        assert len(set(ours)) > 5


@pytest.mark.parametrize("shape", [OURS[0], *OURS[2:]], ids=lambda shape: "-".join(map(str, shape.values())))
def test_imported_again_it_is_what_it_was_bit_for_bit(shape: Shape, tmp_path: Path) -> None:
    model = our_model(**shape)
    store_model(tmp_path / "model", model, TOKENIZER)
    export(tmp_path / "model", "marian", tmp_path / "marian")
    again, tokenizer, config = imported(tmp_path / "marian", tmp_path / "again")
    before, after = weights_of(model), weights_of(again)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert replace(config.model, dropout=model.config.dropout) == model.config
    assert tokenizer.encode_batch(SENTENCES) == TOKENIZER.encode_batch(SENTENCES)


WHY_NOT: list[tuple[Shape, str]] = [
    ({"norm": "pre"}, "norm=post"),
    ({"positions": "learned"}, "sinusoidal"),
    ({"d_k": 64}, "share d_model"),
    ({"n_heads": 5}, "share d_model"),
]


@pytest.mark.parametrize(("shape", "words"), WHY_NOT, ids=lambda value: str(value))
def test_what_marian_cannot_be_is_refused_before_a_file_is_written(shape: Shape, words: str, tmp_path: Path) -> None:
    config = tiny_shape(**{"d_k": 4, "d_v": 4, **shape})
    reason = unsupported_by_marian(config)
    assert reason and words in reason
    model = store_model(tmp_path / "model", Transformer(config), TOKENIZER)
    with pytest.raises(UserError, match=words):
        export_marian(model, tmp_path / "marian")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_every_row_of_table_3_that_is_like_the_paper_can_leave() -> None:
    unable = {name for name in PRESETS if unsupported_by_marian(configure(PRESETS[name]).model)}
    others = {"rnn", "rnn-attention", "convs2s", "bytenet", "neural-gpu", "memory-network"}  # not the paper's
    assert unable == {"tiny", "small", "small-fast", "thorough", "table3-e-learned", *others}
