"""Every choice a run can make: frozen dataclasses whose defaults are the paper's, and how they are set.

A choice is addressed by its dotted name (`train.warmup`) everywhere: in presets, in TOML files, in `--set`.
"""

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

BEAM, ALPHA = 4, 0.6  # §6.1: the width of the beam, and the exponent of the length penalty
PUBLISHED = ("search", "provenance")  # sections of config.json that only a published model has
FORMAT = 1  # of config.json; a reader refuses what is newer than itself

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]

Mixers = Literal[
    "attention", "local", "linformer", "bigbird", "lstm", "gru", "convolution", "dilated", "separable", "gated"
]
LONGEST_TREE = 4000  # tokens of a sentence whose places fit beside their ids
NOT_CAUSAL = {"linformer": "Linformer", "bigbird": "BigBird"}  # they see the whole sentence, and what follows with it

_STRICT = ConfigDict(extra="forbid")


class UserError(Exception):
    """Something the user can mend, in one clear sentence; the command line shows it and exits with 1."""


class ConfigError(UserError):
    """A setting that cannot be: the command was misused, and exits with 2."""


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class ModelConfig:
    """The shape of a Transformer; the defaults are the paper's base model (Table 3)."""

    vocab_size: Positive = 37_000  # §5.1: a shared vocabulary of about 37,000 tokens
    d_model: Positive = 512  # width of every layer's output
    d_ff: Positive = 2048  # inner width of the feed-forward layers
    encoder_layers: Positive = 6  # N of the encoder
    decoder_layers: Positive = 6  # N of the decoder
    n_heads: Positive = 8  # h
    d_k: Positive = 64  # width of the queries and keys of a head
    d_v: Positive = 64  # width of the values of a head
    dropout: Share = 0.1  # P_drop, on sub-layers and embeddings (§5.4)
    max_len: Positive = 1024  # positions a model knows; longer input is refused
    norm: Literal["post", "pre"] = "post"  # LayerNorm after each sub-layer as in the paper, or before it
    activation: Literal["relu", "gelu", "swish"] = "relu"  # of the feed-forward layers
    positions: Literal["sinusoidal", "learned", "relative", "tree", "none"] = "sinusoidal"  # §3.5, row E, variants.py
    score: Literal["scaled", "dot", "additive"] = "scaled"  # of attention: §3.2.1, or without the root, or Bahdanau's
    encoder_mixer: Mixers = "attention"  # what lets the places of a source know of each other
    decoder_mixer: Mixers = "attention"  # and those of a target
    window: Positive = 64  # r of local and bigbird: places seen around each (§4)
    kernel: Positive = 3  # k of the convolutions: places that one covers
    relative_distance: Positive = 16  # farthest that relative positions tell apart
    projected_length: Positive = 64  # of linformer: what the length of a sentence is projected to
    global_tokens: Count = 2  # of bigbird: the first places see all, and are seen by all
    random_blocks: Count = 1  # of bigbird: blocks of half a window that each block sees anywhere
    attention_bias: bool = False  # biases in the projections of attention
    output_bias: bool = False  # a bias on the logits
    tie: Literal["all", "target", "none"] = "all"  # embeddings that share a matrix with the output (§3.4)
    pad_id: Count = 0  # the id that fills up a batch

    def __post_init__(self) -> None:
        if self.pad_id >= self.vocab_size:
            raise ConfigError(f"model.pad_id {self.pad_id} is not in a vocabulary of {self.vocab_size}")
        if name := NOT_CAUSAL.get(self.decoder_mixer):
            raise ConfigError(
                f"model.decoder_mixer={self.decoder_mixer}: {name} lets a place see what follows it, which a decoder "
                "has yet to say; it is for the encoder"
            )
        # Relative positions are part of the attention's score, so there has to be one, and over all distances.
        needed = {"score": "scaled", "encoder_mixer": "attention", "decoder_mixer": "attention"}
        for name, value in needed.items() if self.positions in ("relative", "tree") else ():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"model.positions={self.positions} needs model.{name}={value}, not {getattr(self, name)}"
                )

    @property
    def variants(self) -> list[str]:
        """The settings by which layers are other than the paper's; multihead/variants.py makes those."""
        paper = {"score": "scaled", "encoder_mixer": "attention", "decoder_mixer": "attention"}
        names = [f"model.{name}={getattr(self, name)}" for name, its in paper.items() if getattr(self, name) != its]
        return [*names, f"model.positions={self.positions}"] if self.positions in ("relative", "tree") else names


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class DataConfig:
    """What text a model is trained on, and how it is cut into batches (§5.1)."""

    source_lang: str = ""  # such as en; guessed from a file called a.en
    target_lang: str = ""  # such as de
    licence: str = ""  # of the text, for the model's card
    tokenizer: Literal["bpe", "wordpiece", "unigram"] = "bpe"  # §5.1; unigram is for imported models
    bpe_dropout: Share = 0.0  # chance that a merge is left out while training (0: off, as in the paper)
    haste: Share = 0.0  # chance that a source is seen in small letters or without its final mark, as typed in haste
    tree: bool = False  # a source line is words, a tab, and the number of each word's head (trees.py)
    clean: bool = True  # drop copies, duplicates and pairs of very unequal length
    max_ratio: PositiveFloat = 3.0  # longest side / shortest side, in characters, relative to the corpus's median ratio
    unicode: Literal["nfc", "none"] = "nfc"  # normalization of training text and input; none: text is left unchanged
    max_length: Positive = 256  # tokens of one sentence; longer pairs are dropped
    batch_tokens: Positive = 25_000  # of source, and as many of target, padding counted; of all processes together

    def __post_init__(self) -> None:
        if self.batch_tokens <= self.max_length:
            raise ConfigError(
                f"data.batch_tokens ({self.batch_tokens}) must be larger than data.max_length "
                f"({self.max_length}), so that every sentence fits into a batch"
            )
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise ConfigError("data.bpe_dropout needs data.tokenizer=bpe: word pieces have no merges to drop")
        if self.tree and (self.bpe_dropout or self.haste):
            raise ConfigError(
                "data.tree is for sources as they are: data.bpe_dropout and data.haste change their words"
            )
        if self.tree and self.max_length > LONGEST_TREE:
            raise ConfigError(f"data.tree takes sentences of up to {LONGEST_TREE:,} tokens, not {self.max_length:,}")


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class TrainConfig:
    """Optimiser, schedule and regularisation of §5.3 and §5.4, and when a run saves, validates and stops."""

    start_from: str = ""  # model whose shape, vocabulary and weights a run begins with; without one, with chance
    steps: Positive = 100_000  # updates of the weights
    minutes: NonNegative = 0.0  # stop after this wall time, everything included (0: no limit)
    warmup: Positive = 4000  # steps over which the rate rises (§5.3)
    lr_scale: PositiveFloat = 1.0  # multiplies eq. (3)
    decay: Literal["sqrt", "linear"] = "sqrt"  # after the warm-up: eq. (3), or straight down to 0 at the run's end
    optimizer: Literal["adam", "muon"] = "adam"  # Adam as in §5.3, or Muon for the matrices inside the layers
    beta1: Share = 0.9  # of Adam
    beta2: Share = 0.98  # of Adam
    eps: PositiveFloat = 1e-9  # of Adam
    label_smoothing: Share = 0.1  # ε_ls (§5.4)
    r_drop: NonNegative = 0.0  # weight of R-Drop: two passes with other dropout must agree (0: one pass, as in §5)
    r_drop_from: Share = 0.0  # of the run: before this share is done there is one pass, in half the time
    weight_decay: NonNegative = 0.0  # of the layers' matrices, times the rate, in each step (0: none, as in §5)
    clip_norm: NonNegative = 0.0  # largest gradient norm (0: no clipping, as in the paper)
    accumulate: Positive = 1  # batches summed into one step
    seed: Count = 1  # of weights, order and dropout
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 where the hardware has it
    compile: bool = False  # torch.compile: minutes at the start, faster steps on GPUs
    parallel: Literal["ddp", "fsdp"] = "ddp"  # under torchrun: each process has the whole model, or a shard of it
    log_every: Positive = 100  # steps
    validate_every: Positive = 1000  # steps
    save_every: Positive = 1000  # steps between the checkpoints that are averaged
    save_minutes: PositiveFloat = 10.0  # a checkpoint at least this often, so that a crash costs little
    keep: Positive = 5  # newest checkpoints kept, besides the best
    average: Positive = 5  # checkpoints averaged into the published model (§6.1)
    patience: Count = 0  # validations without improvement before stopping (0: never)
    alpha: NonNegative | Literal["auto"] = ALPHA  # length penalty of the published model; auto: the best on validation
    bleu_sentences: Count = 1000  # validation sentences translated for BLEU while training (0: none)

    def __post_init__(self) -> None:
        if self.average > self.keep:
            raise ConfigError(f"train.average ({self.average}) needs train.keep ({self.keep}) to be at least as large")


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class ModelSearch:
    """`search` in config.json: how this model translates best, chosen on validation text when it was published."""

    alpha: NonNegative = ALPHA  # of the length penalty
    split: bool = True  # False for a model that was trained on lines of several sentences


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class SearchConfig:
    """How a translation is searched for; the defaults are §6.1's."""

    beam: Positive = BEAM  # hypotheses kept at every step; 1 is greedy
    alpha: NonNegative | None = None  # of the length penalty ((5 + length) / 6)^alpha; None: the model's own
    max_extra: Count = 50  # an output is at most this much longer than its input
    n_best: Positive = 1  # hypotheses given back
    min_length: Count = 0  # shortest output, in tokens
    no_repeat: Count = 0  # no run of so many tokens comes twice (0: as it comes)
    prune: NonNegative = 0.0  # give up what is so many nats behind the best (0: only what cannot win)
    shortlist: bool = True  # say only words that translate those of the source, if the model knows them
    split: bool | None = None  # translate each sentence of a text separately; None: as the model was trained
    guard: bool = True  # search again for what is empty, repeats itself, copies the source or loses a number
    sample: bool = False  # draw tokens instead of searching for the likeliest
    temperature: PositiveFloat = 1.0  # of sampling: below 1 is more careful, above 1 bolder
    top_k: Count = 0  # sample from so many likeliest tokens (0: from all)
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # sample from the likeliest tokens of this much probability
    seed: Count = 1  # of sampling

    def __post_init__(self) -> None:
        if self.n_best > self.beam and not self.sample:
            raise ConfigError(f"{self.n_best} best translations need a beam of at least as many, got {self.beam}")

    @property
    def penalty(self) -> float:
        """The exponent of the length penalty; the paper's, if neither the user nor the model names one."""
        return ALPHA if self.alpha is None else self.alpha

    def of_model(self, own: ModelSearch) -> "SearchConfig":
        """Fill in what the user left open with what the model stores."""
        return dataclasses.replace(
            self,
            alpha=own.alpha if self.alpha is None else self.alpha,
            split=own.split if self.split is None else self.split,
        )


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class RunConfig:
    """The whole of `config.json`: a run is a function of this and of its text."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.data.tree != (self.model.positions == "tree"):
            raise ConfigError(
                "data.tree=true and model.positions=tree go together: trees beside the text, and their use"
            )
        if self.data.max_length >= self.model.max_len:
            raise ConfigError(
                f"data.max_length ({self.data.max_length}) must be smaller than model.max_len "
                f"({self.model.max_len}), which also counts the end symbol"
            )


# What may change when a run goes on; everything else is part of its identity.
CHANGEABLE = frozenset(
    {
        *("train.steps", "train.minutes", "train.patience"),
        *("train.alpha", "train.log_every", "train.validate_every", "train.bleu_sentences"),
        *("train.save_every", "train.save_minutes", "train.keep", "train.average"),
        *("train.precision", "train.compile", "train.parallel"),
    }
)

Overrides = Mapping[str, object]

ENGINES = (
    "auto",
    "torch",
    "ctranslate2",
    "ctranslate2:float32",
)  # what can translate; CTranslate2 with int8 or float32


def check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise ConfigError(f"there is no engine '{engine}'; there are {', '.join(ENGINES)}")


def configure(*layers: Overrides, start: RunConfig | None = None) -> RunConfig:
    """`start` (by default the paper's base model) with fields replaced, later layers over earlier ones.

    Values may be strings, as they come from a command line: they are read as the field's type.
    """
    values = flatten(start or RunConfig())
    for layer in layers:
        for name, value in layer.items():
            if name not in values:
                raise ConfigError(f"there is no setting '{name}'{nearest(name, list(values))}")
            values[name] = value
    try:
        return TypeAdapter(RunConfig).validate_python(_nest(values))
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def search_config(**options: object) -> SearchConfig:
    """Options of a search, as a command line or a caller gives them."""
    try:
        return SearchConfig(**options)  # type: ignore[arg-type]  # pydantic checks names and values, and says which
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def explain(error: ValidationError) -> str:
    """What is wrong with a setting, in a sentence that begins with its name."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    return f"{name} is missing" if first["type"] == "missing" else f"{name}={first['input']}: {first['msg']}"


def flatten(config: RunConfig) -> dict[str, Any]:
    """Every field by its dotted name."""
    return _dotted(dataclasses.asdict(config))


def parse_settings(settings: list[str]) -> Overrides:
    """`["train.warmup=8000"]` as overrides."""
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise ConfigError(f"--set takes field=value, for example train.warmup=8000; got '{name}'")
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_toml(path: Path) -> Overrides:
    """A run file (`[train]`, `warmup = 8000`) as overrides."""
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the run file {path}: {error}") from None
    loose = [name for name, fields in sections.items() if not isinstance(fields, dict)]
    if loose:
        raise ConfigError(f"{path}: '{loose[0]}' stands outside of a section such as [model] or [train]")
    return _dotted(sections)


def to_json(config: RunConfig, provenance: Mapping[str, Any] | None = None, search: ModelSearch | None = None) -> str:
    """The content of config.json; of a published model with how it came about and how it translates best."""
    published = {"search": dataclasses.asdict(search) if search else None, "provenance": provenance}
    document = {"format": FORMAT, **dataclasses.asdict(config)}
    return json.dumps(document | {name: value for name, value in published.items() if value}, indent=2) + "\n"


def from_json(text: str, origin: Path) -> RunConfig:
    """A `config.json` read back; `origin` is named when it cannot be."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{origin} is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise UserError(f"{origin} is not a configuration of Multihead: it has no format number")
    if document["format"] > FORMAT:
        raise UserError(
            f"{origin} has format {document['format']}, and this version reads up to {FORMAT}: update multihead"
        )
    sections = {name: fields for name, fields in document.items() if isinstance(fields, dict) and name not in PUBLISHED}
    try:
        return configure(_WHEN_ABSENT, _dotted(sections))
    except ConfigError as error:
        raise UserError(f"{origin}: {error}") from None


# Values of fields that an older config.json does not have, where the default of a new run would be wrong.
_WHEN_ABSENT: Overrides = {"data.unicode": "none"}


def search_from_json(text: str, origin: Path) -> ModelSearch:
    """How a model translates best, by its `config.json`; one that says nothing is searched as in the paper."""
    try:
        stored = json.loads(text).get("search", {})
        return TypeAdapter(ModelSearch).validate_python(stored)
    except ValidationError as error:
        raise UserError(f"{origin}: search.{explain(error)}") from None


def _dotted(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{name}": value for section, fields in sections.items() for name, value in fields.items()}


def _nest(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for dotted, value in values.items():
        section, _, name = dotted.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections


def nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(sorted(known))}"
