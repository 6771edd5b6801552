"""`multihead explain`: the lesson about a model, or without one."""

import ast
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from multihead.config.schema import ModelConfig, SearchConfig
from multihead.errors import UserError
from multihead.lesson.page import asset, render
from multihead.storage.arrays import Arrays
from multihead.storage.files import write_text_atomic
from multihead.storage.model_folder import ModelFolder
from multihead.text.tokenizer import EOS_ID

MAX_LIVE_PARAMETERS = 12_000_000  # of a model whose weights are put into the page
EXACT_PARAMETERS = 1_000_000  # up to which the page keeps float32; larger models are rounded to float16
SAMPLE_PAIR = "en-de"  # of the lesson's own sentences
SENTENCE = "My sister bought a red bicycle yesterday."
EXAMPLES = (
    "Where is the station?",
    "The man eats a small fish.",
    "A small fish eats the man.",
    "I am fine.",
    "She lost her book, but she found it again.",
)

LESSON_TEXTS = ("station.", "training.", "knob.", "whatif.", "passes.")  # not needed where there is no model

# The code beside each station: file of the package, and the names of functions, classes or methods in it.
CODE: dict[str, tuple[str, ...]] = {
    "forward": ("model/transformer.py", "Transformer.forward"),
    "encode_text": ("text/tokenizer.py", "SubwordTokenizer.encode"),
    "embed": ("model/transformer.py", "Transformer.embed"),
    "sinusoids": ("model/positions.py", "sinusoids"),
    "queries": ("model/transformer.py", "MultiHeadAttention.queries", "MultiHeadAttention.keys_values"),
    "attention_weights": ("model/transformer.py", "attention_weights"),
    "masked_softmax": ("model/transformer.py", "masked_softmax"),
    "attention": ("model/transformer.py", "attention"),
    "merge": ("model/transformer.py", "MultiHeadAttention.merge"),
    "residual": ("model/transformer.py", "Residual"),
    "feed_forward": ("model/transformer.py", "FeedForward"),
    "encoder_layer": ("model/transformer.py", "EncoderLayer"),
    "memory_keys_values": ("model/transformer.py", "Transformer.memory_keys_values"),
    "decoder_layer": ("model/transformer.py", "DecoderLayer"),
    "output": ("model/transformer.py", "Transformer.forward"),
    "decode_step": ("model/transformer.py", "Transformer.decode_step"),
    "smoothed_loss": ("training/loss.py", "smoothed_loss"),
    "length_penalty": ("translation/engine.py", "length_penalty"),
}


def sample(pair: str) -> list[str]:
    """Return the lines of the lesson's sentences for a pair of languages such as "en-de": source, tab, translations."""
    return asset(f"sentences.{pair}.tsv").splitlines()


def write_toy_lesson(path: Path) -> None:
    """Write the page without a model: the examples by hand and the labs."""
    texts = _texts()
    texts["strings"] = {key: text for key, text in texts["strings"].items() if not key.startswith(LESSON_TEXTS)}
    write_text_atomic(path, render({"about": {"language": "en"}, **texts}, {}))


def write_lesson(folder: ModelFolder, text: str | None, path: Path, roles: dict[str, Any] | None = None) -> bool:
    """Write the lesson about a model, with the `roles` of its heads if they were measured.

    Return whether the page carries the model, or one sentence's numbers instead.
    """
    page, is_live = lesson_page(folder, text, roles)
    write_text_atomic(path, page)
    return is_live


def lesson_page(folder: ModelFolder, text: str | None, roles: dict[str, Any] | None = None) -> tuple[str, bool]:
    """Return the lesson about a model, and whether the page carries the model."""
    if folder.config.data.directions:
        raise UserError(
            f"the lesson explains models of one pair of languages, and {folder.path.name} has several directions: "
            "`multihead inspect MODEL TEXT --to LANG` shows its attention"
        )
    is_live = can_run_in_a_page(folder)
    about, binary = _live(folder) if is_live else _recorded(folder, text or SENTENCE)
    about |= {
        "name": folder.path.name,
        "config": _shape(folder.config.model),
        "sentence": text or SENTENCE,
        "examples": EXAMPLES if folder.config.data.source_lang == "en" else (),
        "code": code_excerpts(),
        "roles": roles,
        "differences": differences(folder.config.model),
    }
    return render({"about": about, **_texts()}, binary), is_live


def can_run_in_a_page(folder: ModelFolder) -> bool:
    """Return whether the page's own engine computes this model, and the page stays small with its weights in it."""
    model = folder.config.model
    can_compute = {
        "encoder_mixer": ("attention",),
        "decoder_mixer": ("attention",),
        "system": ("transformer",),
        "cross": ("attention",),
        "attention_score": ("scaled", "dot", "additive"),
        "positions": ("sinusoidal", "learned", "none"),
    }
    is_supported = all(getattr(model, name) in values for name, values in can_compute.items())
    is_supported &= not folder.config.data.directions
    return is_supported and folder.config.data.tokenizer == "bpe" and folder.n_parameters <= MAX_LIVE_PARAMETERS


def _live(folder: ModelFolder) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The model itself: its weights, and its tokenizer."""
    kind = np.dtype(np.float32 if folder.n_parameters <= EXACT_PARAMETERS else np.float16)
    index, raw = pack(folder.weights(), kind)
    about = {
        "alpha": SearchConfig().of_model(folder.search).penalty,
        "weights": index,
        "has_tokenizer": True,
        "training": _training(folder),
    }
    return about, {"weights": raw, "tokenizer": json.dumps(tokenizer_parts(folder)).encode()}


def measure_roles(folder: ModelFolder) -> dict[str, Any] | None:
    """Return what each head does over the lesson's sentences; None if there are none in the model's language."""
    from multihead.inspection.head_roles import head_roles
    from multihead.translation.engines.torch_engine import torch_threads
    from multihead.translation.translator import load

    if folder.config.data.source_lang != SAMPLE_PAIR[:2] or not can_run_in_a_page(folder):
        return None
    translator = load(folder.path, engine="torch")
    texts = [line.split("\t")[0] for line in sample(SAMPLE_PAIR)]
    translations = translator.translate(texts, beam=1, split=False, guard=False)
    with torch_threads(1):  # many small passes, which more threads only slow down
        maps = [translator.attention(text, one.text) for text, one in zip(texts, translations, strict=True)]
    return {"sentences": len(texts), "heads": [asdict(head) for head in head_roles(maps)]}


def _training(folder: ModelFolder) -> dict[str, Any]:
    """How the model was trained, as far as its folder says so."""
    train, made = folder.config.train, folder.provenance
    names = ("optimizer", "beta1", "beta2", "eps", "warmup", "label_smoothing", "average_checkpoints")
    return {
        "train": {name: getattr(train, name) for name in names},
        "data": {"batch_tokens": folder.config.data.batch_tokens},
        "steps": made.steps,
        "seconds": made.seconds,
        "tokens": made.target_tokens,
        "scores": [{"set": one.set, "value": one.value} for one in made.scores if one.name == "BLEU"],
    }


def tokenizer_parts(folder: ModelFolder) -> dict[str, Any]:
    """What the page's tokenizer needs: pieces by id, merges by rank, the pattern of words."""
    document = json.loads((folder.path / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer = folder.tokenizer()
    split = next(step for step in document["pre_tokenizer"]["pretokenizers"] if step["type"] == "Split")
    return {
        "pieces": tokenizer.pieces(),
        "merges": tokenizer.merges(),
        "words": split["pattern"]["Regex"],
        "unicode": folder.config.data.unicode,
    }


def pack(weights: Arrays, kind: np.dtype[Any]) -> tuple[list[dict[str, Any]], bytes]:
    """Return arrays one behind the other, little-endian, and an index of where each one is."""
    index, parts, offset = [], [], 0
    for name, array in weights.items():
        raw = np.ascontiguousarray(array, dtype=kind.newbyteorder("<")).tobytes()
        dtype = "F32" if kind == np.float32 else "F16"
        index.append(
            {"name": name, "shape": list(array.shape), "dtype": dtype, "offset": offset, "size": int(array.size)}
        )
        parts.append(raw)
        offset += len(raw)
    return index, b"".join(parts)


def _recorded(folder: ModelFolder, text: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Every number of one sentence, for a model that is too large for a page or that its engine does not know."""
    from multihead.translation.translator import load

    translator = load(folder.path)
    translation = translator.translate(text)
    trace = translator.trace(text, translation.text)
    tensors = {name: array for name, array in trace.items() if name not in ("logits", "probabilities")}
    index, raw = pack(tensors, np.dtype(np.float16))
    tokenizer = translator.tokenizer
    labels = {"source": tokenizer.readable(trace.source_ids), "read": tokenizer.readable(trace.target_ids)}
    words = tokenizer.readable(range(tokenizer.vocab_size))
    written = [*trace.target_ids[1:], EOS_ID]
    about = {
        "trace": index,
        "labels": labels,
        "top": _top_words(trace["logits"], trace["probabilities"], written, words),
        "translation": translation.text,
        "score": translation.score,
    }
    return about, {"trace": raw}


def _top_words(
    logits: np.ndarray[Any, Any],
    probabilities: np.ndarray[Any, Any],
    written: Iterable[int],
    words: list[str],
    n: int = 20,
) -> list[dict[str, Any]]:
    """The likeliest words of each step, and the probability of the one that was written."""
    return [
        {
            "written": float(row[id]),
            "words": [[words[at], float(row[at]), float(logit[at])] for at in np.argsort(-row)[:n].tolist()],
        }
        for row, logit, id in zip(probabilities, logits, written, strict=True)
    ]


def _shape(model: ModelConfig) -> dict[str, Any]:
    """The settings of a model that the page knows."""
    names = (
        *(
            "vocab_size",
            "d_model",
            "d_ff",
            "dropout",
            "encoder_layers",
            "decoder_layers",
            "n_heads",
            "d_k",
            "d_v",
            "max_len",
            "norm",
        ),
        *("activation", "positions", "attention_score", "tie_embeddings", "encoder_mixer", "decoder_mixer"),
    )
    return {name: getattr(model, name) for name in names}


def _texts() -> dict[str, Any]:
    """The words and the formulas of the page."""
    return {"strings": json.loads(asset("strings.en.json")), "formulas": json.loads(asset("formulas.json"))}


def code_excerpts() -> dict[str, dict[str, str]]:
    """Return the code that runs, as it stands in the package, without importing it."""
    root = Path(__file__).parents[1]
    sources = {file: (root / file).read_text(encoding="utf-8") for file, *_ in CODE.values()}
    return {
        key: {"file": f"multihead/{file}", "text": "\n\n".join(definition(sources[file], name) for name in names)}
        for key, (file, *names) in CODE.items()
    }


def definition(source: str, name: str) -> str:
    """Return the text of a function, a class, or a method given as `Class.method`."""
    body: list[ast.stmt] = ast.parse(source).body
    node: ast.stmt | None = None
    for part in name.split("."):
        named = [one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == part]
        node = named[-1]  # after its overloads
        assert isinstance(node, ast.FunctionDef | ast.ClassDef)
        body = node.body
    assert node is not None
    lines = source.split("\n")[node.lineno - 1 : node.end_lineno]
    return "\n".join(line[node.col_offset :] if line.strip() else "" for line in lines)


def differences(model: ModelConfig) -> dict[str, list[str]]:
    """Return where this model is other than the paper's, by station."""
    notes: dict[str, list[str]] = {}
    if model.norm == "pre":
        notes["norm"] = ["This model normalizes before each sub-layer (pre-norm). The paper does it after the sum."]
    if model.activation != "relu":
        notes["ffn"] = [f"This model uses {model.activation} in place of ReLU."]
    if model.positions != "sinusoidal":
        notes["positions"] = [f"This model's positions: {model.positions}. The paper's are sinusoids."]
    if model.attention_score != "scaled":
        notes["scores"] = [f"This model's score is {model.attention_score}. The paper's is the scaled dot product."]
    if model.tie_embeddings != "all":
        notes["embedding"] = ["In this model, source, target and output do not share one matrix. In the paper they do."]
    if model.encoder_layers != model.decoder_layers:
        notes["sentence"] = [
            f"This model has {model.encoder_layers} encoder and {model.decoder_layers} decoder layers. "
            "In the paper both stacks have the same number."
        ]
    return notes
