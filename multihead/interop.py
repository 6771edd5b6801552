"""The same model for another engine: CTranslate2, by a table of its names and ours, and a search that it does.

Its numbers are ours to the last digits in float32; its search is not quite ours. It ends a sentence when `beam`
hypotheses have ended, where ours goes on while a live one may still win, and it knows one limit of length for a batch.
What comes back is put right here: scores are the paper's, and no output is longer than its own sentence allows.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor, nn

from multihead.batches import cut_by_length
from multihead.checkpoint import weights_of
from multihead.config import ModelConfig, SearchConfig, UserError
from multihead.engines import TorchEngine
from multihead.files import appearing_whole
from multihead.model import Transformer
from multihead.search import Found, Hypothesis, length_penalty
from multihead.shortlist import NEVER_SAID, Shortlist
from multihead.tokenizer import BOS_ID, EOS_ID, SPECIAL_TOKENS, UNK_ID, SubwordTokenizer

FORMAT = 1  # of an export; another number makes those that are kept beside a model stale
STAMP = "multihead.json"  # what an export was made from
BATCH_TOKENS = 1024  # source tokens that a worker searches at a time; larger is no faster, and slower with int8
SHORTLIST_BATCH_TOKENS = 128  # with a shortlist, which is that of a whole batch, and shorter for a smaller one
VOCABULARY_MAP = "vmap.txt"  # what CTranslate2 calls a shortlist
N_SPECIAL = len(SPECIAL_TOKENS)
SHORTEST_FIRST = -6.0  # as length penalty: a log-probability is multiplied by length^6, so that length outweighs it
IMPOSSIBLE = -1e9  # nats; CTranslate2 gives what is forbidden a very low score, and takes it if there is nothing else

Batch = tuple[list[int], int]  # segments by their place, and how long their outputs may be
Table = dict[str, tuple[str, ...]]  # a module of theirs -> those of ours that are stacked into it

_EMBEDDINGS: Table = {
    "encoder.embeddings.0": ("source_embedding",),
    "decoder.embeddings": ("target_embedding",),
    "decoder.projection": ("output",),
}
_FINAL_NORMS: Table = {  # with norm=pre
    "encoder.layer_norm": ("encoder_norm",),
    "decoder.layer_norm": ("decoder_norm",),
}
_SELF_ATTENTION: Table = {
    "self_attention.linear.0": ("self_attention.w_q", "self_attention.w_k", "self_attention.w_v"),
    "self_attention.linear.1": ("self_attention.w_o",),
    "self_attention.layer_norm": ("residual_1.norm",),
}
_ENCODER_LAYER: Table = {
    **_SELF_ATTENTION,
    "ffn.linear_0": ("feed_forward.w_1",),
    "ffn.linear_1": ("feed_forward.w_2",),
    "ffn.layer_norm": ("residual_2.norm",),
}
_DECODER_LAYER: Table = {
    **_SELF_ATTENTION,
    "attention.linear.0": ("cross_attention.w_q",),
    "attention.linear.1": ("cross_attention.w_k", "cross_attention.w_v"),
    "attention.linear.2": ("cross_attention.w_o",),
    "attention.layer_norm": ("residual_2.norm",),
    "ffn.linear_0": ("feed_forward.w_1",),
    "ffn.linear_1": ("feed_forward.w_2",),
    "ffn.layer_norm": ("residual_3.norm",),
}
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}


# Export


def why_not_ctranslate2(config: ModelConfig) -> str:
    """Why CTranslate2 cannot run this shape, in words; empty if it can."""
    if config.activation not in _ACTIVATIONS:
        return f"CTranslate2 does not have the activation {config.activation}"
    widest = max(config.vocab_size, config.max_len, config.d_ff, 3 * config.n_heads * _head_width(config))
    if 4 * widest * config.d_model >= 2**32:  # it writes sizes in bytes as 32 bits
        return f"CTranslate2 stores no matrix of {widest:,} x {config.d_model:,} numbers: that is over 4 GB"
    return ""


def export_ctranslate2(
    model: Transformer,
    tokenizer: SubwordTokenizer,
    folder: Path,
    quantization: str = "float32",
    shortlist: Shortlist | None = None,
) -> None:
    """Write the model for CTranslate2. Refused before a file is written if it cannot be run.

    The vocabulary is the pieces of tokenizer.json, which lies beside it: `encode(text).tokens` of the `tokenizers`
    library is what CTranslate2 translates, and it adds the end symbol itself.
    """
    library = _ctranslate2()
    pieces = tokenizer.tokens(range(model.config.vocab_size))
    known = library.specs.model_spec.ACCEPTED_MODEL_TYPES
    if reason := why_not_ctranslate2(model.config):
        raise UserError(reason)
    if quantization not in known:
        raise UserError(f"CTranslate2 has no quantization '{quantization}': take one of {', '.join(known)}")
    if len(set(pieces)) != tokenizer.vocab_size or tokenizer.vocab_size != len(pieces):
        raise UserError(f"a model of {len(pieces)} pieces does not fit a tokenizer of {tokenizer.vocab_size}")
    if folder.exists() and not _may_be_replaced(folder):
        raise UserError(f"{folder} is there already, and is not an export of CTranslate2: give another folder")
    specification = _specification(library, model)
    specification.register_source_vocabulary(pieces)
    specification.register_target_vocabulary(pieces)
    specification.validate()
    specification.optimize(quantization=quantization)
    with appearing_whole(folder) as aside:
        specification.save(str(aside))
        (aside / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        if shortlist:
            (aside / VOCABULARY_MAP).write_text(_vocabulary_map(shortlist, pieces), encoding="utf-8")
        stamp = _stamp(model, tokenizer, quantization, shortlist)
        (aside / STAMP).write_text(json.dumps(stamp, indent=2), encoding="utf-8")


def _vocabulary_map(shortlist: Shortlist, pieces: Sequence[str]) -> str:
    """A shortlist as CTranslate2 reads it: a word, a tab, and what may be said for it; no word at all for always."""

    def line(word: str, candidates: Iterable[int]) -> str:
        return f"{word}\t{' '.join(pieces[id] for id in dict.fromkeys(candidates) if id >= N_SPECIAL)}\n"

    words = range(N_SPECIAL, len(pieces))
    by_word = zip(words, shortlist.candidates[N_SPECIAL:].tolist(), strict=True)
    return line("", shortlist.frequent.tolist()) + "".join(line(pieces[id], [*said, id]) for id, said in by_word)


def _may_be_replaced(folder: Path) -> bool:
    return folder.is_dir() and (not any(folder.iterdir()) or (folder / "model.bin").exists())


def has_ctranslate2() -> bool:
    return importlib.util.find_spec("ctranslate2") is not None


def _ctranslate2() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise UserError("CTranslate2 is not installed: pip install 'multihead[interop]'") from None
    return ctranslate2


def _specification(library: Any, model: Transformer) -> Any:
    """The model in the classes of CTranslate2."""
    config, specs = model.config, library.specs
    shape = {
        "num_heads": config.n_heads,
        "head_dim": _head_width(config),
        "pre_norm": config.norm == "pre",
        "activation": specs.Activation[_ACTIVATIONS[config.activation]],
    }
    result = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, **shape),
        specs.TransformerDecoderSpec(config.decoder_layers, **shape),
    )
    result.config.unk_token, result.config.bos_token = SPECIAL_TOKENS[UNK_ID], SPECIAL_TOKENS[BOS_ID]
    result.config.decoder_start_token, result.config.eos_token = SPECIAL_TOKENS[BOS_ID], SPECIAL_TOKENS[EOS_ID]
    result.config.add_source_eos = True
    result.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    for theirs, ours in _names(config):
        _fill(_find(result, theirs), [(name, model.get_submodule(name)) for name in ours], config)
    for stack in (result.encoder, result.decoder):  # without a table it would begin at 1, cosines behind the sines
        stack.position_encodings.encodings = model.positions.detach().cpu().clone()
    return result


def _names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The whole table for this shape."""
    yield from _EMBEDDINGS.items()
    if config.norm == "pre":
        yield from _FINAL_NORMS.items()
    stacks = (
        ("encoder", config.encoder_layers, _ENCODER_LAYER),
        ("decoder", config.decoder_layers, _DECODER_LAYER),
    )
    for stack, n_layers, table in stacks:
        for n in range(n_layers):
            for theirs, ours in table.items():
                yield f"{stack}.layer.{n}.{theirs}", tuple(f"{stack}.{n}.{name}" for name in ours)


def _find(specification: Any, path: str) -> Any:
    for name in path.split("."):
        specification = specification[int(name)] if name.isdigit() else getattr(specification, name)
    return specification


def _fill(theirs: Any, ours: Sequence[tuple[str, nn.Module]], config: ModelConfig) -> None:
    is_norm = isinstance(ours[0][1], nn.LayerNorm)
    for attribute, name in {"weight": "gamma", "bias": "beta"}.items():
        parts = [(our_name, getattr(module, attribute, None)) for our_name, module in ours]
        tensors = [
            _widened(our_name, part.detach().cpu().float(), config) for our_name, part in parts if part is not None
        ]
        if tensors:
            # A new tensor, even of one part: quantization works in place, and would reach the model's own numbers.
            setattr(theirs, name if is_norm else attribute, torch.cat(tensors))


def _head_width(config: ModelConfig) -> int:
    return max(config.d_k, config.d_v)


def _widened(name: str, part: Tensor, config: ModelConfig) -> Tensor:
    """Heads as wide as CTranslate2 wants queries, keys and values alike.

    What is added is zero and changes no product. The root that scores are divided by is then that of the wider head,
    for which the queries make up.
    """
    width = _head_width(config)
    match name.rpartition(".")[2]:
        case "w_q":
            return _with_zeros(part, config.d_k, width) * math.sqrt(width / config.d_k)
        case "w_k":
            return _with_zeros(part, config.d_k, width)
        case "w_v":
            return _with_zeros(part, config.d_v, width)
        case "w_o" if part.dim() == 2:
            return _with_zeros(part.mT, config.d_v, width).mT
    return part


def _with_zeros(part: Tensor, old: int, new: int) -> Tensor:
    """Rows of zeros behind every `old` rows, so that there are `new` of them."""
    heads = part.unflatten(0, (-1, old))  # H K D, or H K for a bias
    return torch.cat([heads, heads.new_zeros(len(heads), new - old, *heads.shape[2:])], dim=1).flatten(0, 1)


# Exports that are kept


def cached_export(
    model: Transformer,
    tokenizer: SubwordTokenizer,
    folder: Path,
    quantization: str,
    shortlist: Shortlist | None = None,
) -> Path:
    """The export of the model in `folder`, made once and kept beside it.

    It is used only if it was made from exactly these numbers, whatever became of the folder since they were read.
    """
    expected = _stamp(model, tokenizer, quantization, shortlist)

    def write(export: Path) -> None:
        export_ctranslate2(model, tokenizer, export, quantization, shortlist)

    for place in _places(folder):
        with contextlib.suppress(OSError):  # read-only, or full
            return _kept_in(place / quantization, expected, write)
    raise UserError(f"there is no place for the export of {folder}: neither beside it nor in a temporary folder")


def _places(folder: Path) -> Iterator[Path]:
    """Beside the model; where nothing can be written, in the user's cache; and else until this process ends."""
    yield folder / "ctranslate2"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if cache.is_absolute():  # there may be no home
        yield cache / "multihead" / "ctranslate2" / hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]
    temporary = Path(tempfile.mkdtemp(prefix="multihead-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    yield temporary


def _kept_in(export: Path, expected: dict[str, object], write: Callable[[Path], None]) -> Path:
    if not _is_fresh(export, expected):
        export.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(export.with_name(f".{export.name}.lock")):
            if not _is_fresh(export, expected):  # another process may have made it meanwhile
                write(export)
    return export


def _is_fresh(export: Path, expected: dict[str, object]) -> bool:
    try:
        return bool(json.loads((export / STAMP).read_text(encoding="utf-8")) == expected)
    except (OSError, ValueError):
        return False


def _stamp(
    model: Transformer, tokenizer: SubwordTokenizer, quantization: str, shortlist: Shortlist | None
) -> dict[str, object]:
    """All that an export is a function of."""
    digest = hashlib.sha256(json.dumps(asdict(model.config)).encode() + tokenizer.to_json().encode())
    for name, tensor in sorted(weights_of(model).items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    for tensor in (shortlist.candidates, shortlist.frequent) if shortlist else ():
        digest.update(tensor.cpu().contiguous().numpy().data)
    versions = {"format": FORMAT, "ctranslate2": _ctranslate2().__version__}
    return {**versions, "quantization": quantization, "sha256": digest.hexdigest()}


# The engine


class CTranslate2Engine:
    """Search by CTranslate2 on the processor, as many batches at a time as there are workers, one thread each.

    That is best for many sentences, and with int8 for a single one too, on which two threads took ten times as long.
    """

    window, ahead = 250, 4

    def __init__(self, folder: Path, config: ModelConfig, workers: int = 0, alone: bool = False) -> None:
        """`workers` batches are searched at a time, by default as many as torch has threads.

        `alone` makes a batch of every sentence: slower, but no neighbour can change it.
        """
        n_threads = torch.get_num_threads()
        options = {"inter_threads": workers or n_threads, "intra_threads": 1}
        try:
            self._pieces: list[str] = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
            self._translator = _ctranslate2().Translator(str(folder), device="cpu", **options)
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"CTranslate2 cannot load {folder}: {error}") from None
        finally:
            torch.set_num_threads(n_threads)  # to load a model sets it to 1, for torch too
        self._ids = {piece: id for id, piece in enumerate(self._pieces)}
        self._max_len = config.max_len
        self._alone, self._has_shortlist = alone, (folder / VOCABULARY_MAP).exists()

    def why_not(self, config: SearchConfig) -> str:
        """Why it cannot search like this, in words; empty if it can."""
        if config.sample:
            return "CTranslate2 draws other samples in other batches, whatever the seed"
        return ""

    def search(self, segments: Sequence[list[int]], config: SearchConfig) -> list[Found]:
        """Translate each of these sentences, ids without the end symbol."""
        if reason := self.why_not(config):
            raise UserError(f"{reason}: use --engine torch")
        longest = max(map(len, segments), default=0) + 1
        if longest > self._max_len:
            raise ValueError(f"{longest} tokens are more than the {self._max_len} positions of this model")
        limits = [min(len(ids) + 1 + config.max_extra, self._max_len) for ids in segments]
        lengths = np.array([[len(ids), len(ids)] for ids in segments], dtype=np.int32).reshape(-1, 2)
        how = _How(
            restrained=bool(config.min_length or config.no_repeat),
            penalty=config.alpha,
            shortlist=config.shortlist and self._has_shortlist,
            alone=self._alone,
        )
        batches = [batch.tolist() for batch in cut_by_length(lengths, how.batch_tokens)][::-1]  # the longest first
        found = self._search(segments, [(at, max(limits[one] for one in at)) for at in batches], config, how)
        late = _by_limit((at for at, one in found.items() if _is_late(one, limits[at], config)), limits)
        found |= self._search(segments, late, config, replace(how, penalty=SHORTEST_FIRST))
        odd = _by_limit((at for at, one in found.items() if _says_symbols(one)), limits)
        found |= self._search(segments, odd, config, replace(how, restrained=True))
        return [found[at] for at in range(len(segments))]

    def _search(
        self, segments: Sequence[list[int]], batches: Iterable[Batch], config: SearchConfig, how: "_How"
    ) -> dict[int, Found]:
        under_way: list[tuple[int, Any]] = []
        for places, limit in batches:
            sources = [self._text(segments[at]) for at in places]
            results = self._translator.translate_batch(sources, **_options(config, limit, how))
            under_way += zip(places, results, strict=True)
        found = {at: self._read(result.result(), config, how.penalty) for at, result in under_way}
        if how.restrained:
            self._score(segments, found, config)
        for one in found.values():
            one.ended.sort(key=lambda hypothesis: -hypothesis.score)
        return found

    def _text(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[id] for id in ids]

    def _read(self, result: Any, config: SearchConfig, penalty: float) -> Found:
        """Its score is the log-probability over length^penalty; the end symbol counts, as it is given back.

        An empty sentence alone comes back without it, as nothing: it is not searched at all.
        """
        found = Found()
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            ids, log_prob = [self._ids[piece] for piece in pieces], score * max(1, len(pieces)) ** penalty
            if ids[-1:] == [EOS_ID] and log_prob > IMPOSSIBLE:  # which something undefined is not either
                found.ended.append(_hypothesis(ids[:-1], log_prob, True, config.alpha))
            elif log_prob > IMPOSSIBLE:
                found.cut.append(_hypothesis(ids, log_prob, False, config.alpha))
        return found

    def _score(self, segments: Sequence[list[int]], found: dict[int, Found], config: SearchConfig) -> None:
        """Give what has ended the model's own log-probabilities: CTranslate2 spreads that of what is forbidden."""
        ended = [(at, one.tokens) for at in found for one in found[at].ended]
        sources, targets = [self._text(segments[at]) for at, _ in ended], [self._text(tokens) for _, tokens in ended]
        batching = {"max_batch_size": BATCH_TOKENS, "batch_type": "tokens"}
        results = self._translator.score_batch(sources, targets, max_input_length=0, **batching)
        for at in found:
            found[at].ended.clear()
        for (at, tokens), result in zip(ended, results, strict=True):
            found[at].ended.append(_hypothesis(tokens, math.fsum(result.log_probs), True, config.alpha))


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """What differs between the times that a sentence is searched."""

    restrained: bool  # something is forbidden
    penalty: float  # what comes first is what has the largest log-probability / length^penalty
    shortlist: bool
    alone: bool  # every sentence is a batch

    @property
    def batch_tokens(self) -> int:
        return SHORTLIST_BATCH_TOKENS if self.shortlist else BATCH_TOKENS


def _hypothesis(tokens: list[int], log_prob: float, ended: bool, alpha: float) -> Hypothesis:
    penalty = float(length_penalty(len(tokens) + ended, alpha))
    return Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty, ended=ended)


def _options(config: SearchConfig, limit: int, how: _How) -> dict[str, object]:
    """A search in the words of CTranslate2."""
    never_said = [[SPECIAL_TOKENS[id]] for id in NEVER_SAID]
    return {
        "beam_size": config.beam,
        # All that it can give back, to be ranked anew; without a penalty it knows when nothing better can come.
        "num_hypotheses": config.beam if how.penalty else config.n_best,
        "length_penalty": how.penalty,
        "no_repeat_ngram_size": config.no_repeat,
        "min_decoding_length": min(config.min_length, limit),
        "max_decoding_length": limit,
        "max_input_length": 0,  # nothing is cut silently
        "suppress_sequences": never_said if how.restrained else None,
        "return_scores": True,
        "return_end_token": True,
        "use_vmap": how.shortlist,
        "max_batch_size": 1 if how.alone else how.batch_tokens,
        "batch_type": "examples" if how.alone else "tokens",
        "asynchronous": True,
    }


def _by_limit(places: Iterable[int], limits: Sequence[int]) -> list[Batch]:
    ordered = sorted(places, key=limits.__getitem__)
    return [(list(group), limit) for limit, group in groupby(ordered, key=limits.__getitem__)]


def _is_late(found: Found, limit: int, config: SearchConfig) -> bool:
    """True if the limit came before the end of the search.

    A batch has one limit, the largest of all, so that a sentence may go beyond its own. And what is cut at the limit
    counts as ended, and may push what has ended out of the number that is given back.
    """
    longest = max((len(one.tokens) + one.ended for one in found.ended + found.cut), default=0)
    return longest > limit or bool(found.cut and config.beam > 1)


def _says_symbols(found: Found) -> bool:
    """To forbid them from the start would change every score a little, for what hardly ever happens."""
    return any(id in NEVER_SAID for one in found.ended + found.cut for id in one.tokens)


class FastestEngine:
    """What `auto` means: CTranslate2, each sentence alone, so that it is the same whatever its neighbours; and torch
    for what CTranslate2 cannot do."""

    window, ahead = CTranslate2Engine.window, CTranslate2Engine.ahead

    def __init__(self, fast: CTranslate2Engine, other: TorchEngine) -> None:
        self._fast, self._other = fast, other

    def search(self, segments: Sequence[list[int]], config: SearchConfig) -> list[Found]:
        engine = self._other if self._fast.why_not(config) else self._fast
        return engine.search(segments, config)
