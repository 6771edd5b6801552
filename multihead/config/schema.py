"""The settings: frozen dataclasses whose defaults are those of the paper.

A setting is addressed by its dotted name (`train.warmup`) everywhere: in presets, in TOML files and in `--set`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from multihead.config.directions import Languages, languages_of
from multihead.config.fields import Bounds, check_fields
from multihead.errors import UsageError

Settings = Mapping[str, object]  # by dotted name: {"train.warmup": 8000}

MAX_ALPHA = 20.0  # of a larger one, the length penalty of a long sentence could overflow
MAX_POSITION_TABLE = 1 << 26  # numbers in the table of positions: max_len 65,536 for d_model 1,024
MAX_BEAM = 1000  # a larger one could fill the memory
BEAM, ALPHA = 4, 0.6  # §6.1: the beam size and the exponent of the length penalty
ENGINES = ("auto", "torch", "ctranslate2", "ctranslate2:float32")  # CTranslate2 computes in int8 or float32

Count = Annotated[int, Bounds(ge=0)]
Positive = Annotated[int, Bounds(ge=1)]
# Sizes far beyond any model that was ever trained; a config.json of unknown origin may name any number.
Vocabulary = Annotated[int, Bounds(ge=1, le=1_000_000)]
Width = Annotated[int, Bounds(ge=1, le=65_536)]
InnerWidth = Annotated[int, Bounds(ge=1, le=1_048_576)]
Layers = Annotated[int, Bounds(ge=1, le=1000)]
Share = Annotated[float, Bounds(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Bounds(gt=0.0)]
NonNegative = Annotated[float, Bounds(ge=0.0)]

Mixer = Literal[
    "attention", "local", "linformer", "bigbird", "lstm", "gru", "convolution", "dilated", "separable", "gated"
]
SOURCE_SCORES = ("location", "local-p")  # attention scores that predict a position of the source
NOT_CAUSAL = {"linformer": "Linformer", "bigbird": "BigBird"}  # mixers that see the whole sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of a Transformer; the defaults are the paper's base model (Table 3)."""

    vocab_size: Annotated[Vocabulary, "size of the vocabulary that source and target share (§5.1)"] = 37_000
    d_model: Annotated[Width, "width of the output of every layer"] = 512
    d_ff: Annotated[InnerWidth, "inner width of the feed-forward layers"] = 2048
    encoder_layers: Annotated[Layers, "number of encoder layers, N in the paper"] = 6
    decoder_layers: Annotated[Layers, "number of decoder layers, N in the paper"] = 6
    n_heads: Annotated[Width, "number of attention heads, h in the paper"] = 8
    d_k: Annotated[Width, "width of a head's queries and keys"] = 64
    d_v: Annotated[Width, "width of a head's values"] = 64
    dropout: Annotated[Share, "P_drop, on the output of sub-layers and on embeddings (§5.4)"] = 0.1
    max_len: Annotated[InnerWidth, "largest number of positions; longer input is refused"] = 1024
    norm: Annotated[Literal["post", "pre"], "LayerNorm after each sub-layer (the paper) or before it"] = "post"
    activation: Annotated[Literal["relu", "gelu", "swish"], "activation of the feed-forward layers"] = "relu"
    positions: Annotated[
        Literal["sinusoidal", "learned", "relative", "tree", "none"],
        "how positions are encoded (§3.5, Table 3 row E)",
    ] = "sinusoidal"
    attention_score: Annotated[
        Literal["scaled", "dot", "additive", "general", "concat", "location", "local-p"],
        "attention score: §3.2.1, without the square root, additive (Bahdanau), or another one of Luong",
    ] = "scaled"
    system: Annotated[
        Literal["transformer", "neural-gpu", "memory-network"],
        "architecture: the paper's and variants of its parts, or an earlier one",
    ] = "transformer"
    cross: Annotated[
        Literal["attention", "convs2s", "last", "mean"],
        "how the decoder sees the source: attention, that of ConvS2S, or one vector (no attention)",
    ] = "attention"
    encoder_mixer: Annotated[Mixer, "token mixing in encoder layers"] = "attention"
    decoder_mixer: Annotated[Mixer, "token mixing in decoder layers"] = "attention"
    window: Annotated[Width, "local, bigbird, local-p: r, the number of positions seen around one (§4)"] = 64
    kernel: Annotated[Width, "convolutions: k, the kernel width in positions"] = 3
    relative_distance: Annotated[Width, "positions=relative: largest distance that is told apart"] = 16
    projected_length: Annotated[Width, "linformer: length to which keys and values are projected"] = 64
    global_tokens: Annotated[Count, "bigbird: number of first positions that see all and are seen by all"] = 2
    random_blocks: Annotated[Count, "bigbird: number of random blocks that each block sees"] = 1
    image_width: Annotated[Positive, "neural-gpu: width of the image that is as long as the sentence"] = 4
    fact_end_id: Annotated[Count, "memory-network: id of the piece that ends a fact; set when a run starts"] = 0
    attention_bias: Annotated[bool, "biases in the projections of attention"] = False
    output_bias: Annotated[bool, "a bias on the logits"] = False
    tie_embeddings: Annotated[
        Literal["all", "target", "none"],
        "embeddings that share their matrix with the output layer (§3.4)",
    ] = "all"
    pad_id: Annotated[Count, "id of the padding token"] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.pad_id >= self.vocab_size:
            raise UsageError(f"model.pad_id {self.pad_id} is not in a vocabulary of {self.vocab_size}")
        if self.max_len * self.d_model > MAX_POSITION_TABLE:
            raise UsageError(
                f"model.max_len={self.max_len} is too large for model.d_model={self.d_model}: at most "
                f"{MAX_POSITION_TABLE // self.d_model:,} positions"
            )
        if name := NOT_CAUSAL.get(self.decoder_mixer):
            raise UsageError(
                f"model.decoder_mixer={self.decoder_mixer}: {name} is not causal; use it in the encoder only"
            )
        self._check_cross()
        self._check_system()
        # Relative positions are part of scaled attention scores over all distances.
        required = {"attention_score": "scaled", "encoder_mixer": "attention", "decoder_mixer": "attention"}
        for name, value in required.items() if self.positions in ("relative", "tree") else ():
            if getattr(self, name) != value:
                raise UsageError(
                    f"model.positions={self.positions} requires model.{name}={value}, not {getattr(self, name)}"
                )

    def _check_cross(self) -> None:
        if self.cross == "convs2s" and (self.n_heads, self.d_k, self.d_v) != (1, self.d_model, self.d_model):
            raise UsageError(
                "model.cross=convs2s has one head as wide as the model: set model.n_heads=1 and "
                f"model.d_k=model.d_v={self.d_model}"
            )
        if self.cross in ("last", "mean") and self.attention_score in SOURCE_SCORES:
            raise UsageError(
                f"model.attention_score={self.attention_score} is for attention to the source, which model.cross="
                f"{self.cross} removes"
            )

    def _check_system(self) -> None:
        """Refuse variants of parts that another system does not have."""
        if self.system == "transformer":
            return
        required = {"cross": "attention", "attention_score": "scaled", "encoder_mixer": "attention"}
        if self.system == "neural-gpu":
            required["decoder_mixer"] = "attention"
        for name, value in required.items():
            if getattr(self, name) != value:
                raise UsageError(f"model.{name}={getattr(self, name)} has no meaning with model.system={self.system}")
        if self.positions in ("relative", "tree"):
            raise UsageError(f"model.positions={self.positions} has no meaning with model.system={self.system}")

    @property
    def attends_to_source(self) -> bool:
        """Whether the decoder attends to the source, so that words can be aligned."""
        return self.system == "transformer" and self.cross in ("attention", "convs2s")

    @property
    def variants(self) -> list[str]:
        """The settings that replace a layer of the paper by one of `multihead.model.variants`."""
        paper = {
            "system": "transformer",
            "attention_score": "scaled",
            "cross": "attention",
            "encoder_mixer": "attention",
            "decoder_mixer": "attention",
        }
        names = [f"model.{name}={getattr(self, name)}" for name, its in paper.items() if getattr(self, name) != its]
        return [*names, f"model.positions={self.positions}"] if self.positions in ("relative", "tree") else names


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The text of a run: how it is cleaned, split into tokens and batched (§5.1)."""

    source_lang: Annotated[str, "source language, such as en; guessed from the name of a file a.en"] = ""
    target_lang: Annotated[str, "target language, such as de; guessed likewise"] = ""
    directions: Annotated[
        tuple[str, ...], "directions of a model of several languages, such as en-de and de-en; set by its corpora"
    ] = ()
    balance: Annotated[
        Annotated[float, Bounds(ge=1.0)],
        "several directions: one with n pairs is sampled in proportion to n^(1/balance) (1: as it is)",
    ] = 2.0
    license: Annotated[str, "license of the text, for the model card"] = ""
    tokenizer: Annotated[
        Literal["bpe", "wordpiece", "unigram"],
        "type of the tokenizer (§5.1); unigram is for imported models only",
    ] = "bpe"
    bpe_dropout: Annotated[Share, "probability of skipping a BPE merge during training (0: off)"] = 0.0
    casing_noise: Annotated[
        Share,
        "probability of lower-casing a source or dropping its final punctuation during training",
    ] = 0.0
    task: Annotated[
        Literal["translation", "parse"], "what the model does: translates, or writes constituency trees (§6.3)"
    ] = "translation"
    tree: Annotated[bool, "a source line is words, a tab, and the number of each word's head"] = False
    clean: Annotated[bool, "drop untranslated copies, duplicates and pairs of very unequal length"] = True
    max_ratio: Annotated[
        PositiveFloat,
        "largest ratio of the lengths of a pair in characters, relative to the corpus's median ratio",
    ] = 3.0
    min_letters: Annotated[
        Share,
        "drop pairs of which one side has a smaller share of letters beside a side with text (0: off)",
    ] = 0.2
    max_word: Annotated[Count, "drop pairs with a longer word in an alphabet, in characters (0: off)"] = 100
    drop_mojibake: Annotated[bool, "drop pairs with wrongly decoded characters"] = True
    drop_script: Annotated[bool, "drop pairs with a side in another script than is usual there"] = True
    drop_language: Annotated[bool, "drop pairs with a side in the language of the other side"] = True
    drop_numbers: Annotated[bool, "drop pairs with a number of two or more digits on one side only"] = False
    unicode: Annotated[
        Literal["nfc", "none"],
        "normalization of training text and input; none leaves text unchanged",
    ] = "nfc"
    rehearse: Annotated[NonNegative, "fine-tuning: pairs of the base model's own text for each new pair (0: none)"] = (
        1.0
    )
    synthetic_ratio: Annotated[PositiveFloat, "back-translated pairs for each real pair in an epoch, at most"] = 2.0
    max_length: Annotated[Positive, "longest sentence in tokens; longer pairs are dropped"] = 256
    batch_tokens: Annotated[
        Positive,
        "source tokens and target tokens of a batch with padding, summed over all processes",
    ] = 25_000

    @property
    def languages(self) -> list[str]:
        """The languages of a pair, the source first; of several directions those of the first."""
        return [self.source_lang, self.target_lang]

    @property
    def pairs(self) -> list[Languages]:
        """The source and target language of each direction."""
        return [languages_of(name) for name in self.directions] or [(self.source_lang, self.target_lang)]

    @property
    def all_languages(self) -> list[str]:
        """Every language that is known, once."""
        return [code for code in dict.fromkeys(code for pair in self.pairs for code in pair) if code]

    @property
    def has_several_directions(self) -> bool:
        """Whether a source begins with the language to translate into."""
        return bool(self.directions)

    def for_pair(self, source: str, target: str) -> "DataConfig":
        """Return the settings of one direction."""
        return dataclasses.replace(self, source_lang=source, target_lang=target, directions=())

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch_tokens <= self.max_length:
            raise UsageError(
                f"data.batch_tokens ({self.batch_tokens}) must be larger than data.max_length "
                f"({self.max_length}), so that every sentence fits into a batch"
            )
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise UsageError("data.bpe_dropout requires data.tokenizer=bpe: word pieces have no merges to drop")
        for name in self.directions:
            languages_of(name)
        if self.directions and (self.tree or self.task == "parse"):
            raise UsageError("a model of several directions translates text; data.tree and data.task=parse exclude it")
        if self.tree and (self.bpe_dropout or self.casing_noise):
            raise UsageError(
                "data.tree excludes data.bpe_dropout and data.casing_noise: they would change the words of the tree"
            )


# What older versions, which did not have these settings, did.
OLD_DATA_SETTINGS: Settings = {
    **{"unicode": "none", "min_letters": 0.0, "max_word": 0},
    **dict.fromkeys(("drop_mojibake", "drop_script", "drop_language", "drop_numbers"), False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Optimizer, schedule and regularization (§5.3, §5.4), and when a run validates, saves and stops."""

    base_model: Annotated[str, "base model to fine-tune (empty: random initialization)"] = ""
    new_vocabulary: Annotated[bool, "keep only the layers of the base model, and embeddings of pieces in both"] = False
    steps: Annotated[Count, "number of optimizer steps (0: as many as `minutes` allow)"] = 100_000
    minutes: Annotated[NonNegative, "wall-clock limit including preparation and publishing (0: none)"] = 0.0
    warmup: Annotated[Positive, "steps over which the learning rate rises (§5.3)"] = 4000
    lr_scale: Annotated[PositiveFloat, "factor of the learning rate of eq. (3)"] = 1.0
    lr_decay: Annotated[
        Literal["sqrt", "linear"],
        "learning rate after the warm-up: eq. (3), or linear to 0 at the end of the run",
    ] = "sqrt"
    optimizer: Annotated[Literal["adam", "muon"], "Adam as in §5.3, or Muon for the matrices inside the layers"] = (
        "adam"
    )
    beta1: Annotated[Share, "β1 of Adam (§5.3)"] = 0.9
    beta2: Annotated[Share, "β2 of Adam (§5.3)"] = 0.98
    eps: Annotated[PositiveFloat, "ε of Adam (§5.3)"] = 1e-9
    label_smoothing: Annotated[Share, "ε_ls (§5.4)"] = 0.1
    r_drop: Annotated[NonNegative, "weight of R-Drop: agreement of two passes with other dropout (0: off)"] = 0.0
    r_drop_from: Annotated[Share, "share of the run after which R-Drop starts"] = 0.0
    weight_decay: Annotated[NonNegative, "weight decay of the layers' matrices per step, times the rate"] = 0.0
    clip_norm: Annotated[NonNegative, "largest gradient norm (0: no clipping, as in the paper)"] = 0.0
    accumulate: Annotated[Positive, "batches accumulated into one step"] = 1
    seed: Annotated[Count, "seed of weights, batch order and dropout"] = 1
    precision: Annotated[Literal["auto", "float32", "bfloat16"], "auto: bfloat16 on hardware that supports it"] = "auto"
    compile: Annotated[bool, "torch.compile: minutes at the start, faster steps on GPUs"] = False
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        "under torchrun: replicate the model on each process (ddp) or shard it (fsdp)",
    ] = "ddp"
    rank_timeout: Annotated[
        PositiveFloat, "under torchrun: seconds without a sign of life after which a process counts as lost"
    ] = 60.0
    log_every: Annotated[Positive, "steps between log lines"] = 100
    validate_every: Annotated[Positive, "steps between validations"] = 1000
    save_every: Annotated[Positive, "steps between the checkpoints that are averaged"] = 1000
    save_minutes: Annotated[PositiveFloat, "longest time between checkpoints"] = 10.0
    keep_checkpoints: Annotated[Positive, "newest checkpoints kept, besides the best"] = 5
    average_checkpoints: Annotated[Positive, "checkpoints averaged into the published model (§6.1)"] = 5
    patience: Annotated[Count, "validations without improvement before stopping (0: never)"] = 0
    alpha: Annotated[
        NonNegative | Literal["auto"],
        "length penalty of the published model; auto: the best on validation text",
    ] = ALPHA
    bleu_sentences: Annotated[Count, "validation sentences translated for BLEU during training (0: none)"] = 1000

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.steps and not self.minutes:
            raise UsageError("train.steps=0 requires a limit of train.minutes; set one of them")
        if self.new_vocabulary and not self.base_model:
            raise UsageError("a new vocabulary is for a model that another one is trained from: add --from MODEL")
        if self.average_checkpoints > self.keep_checkpoints:
            raise UsageError(
                f"train.average_checkpoints ({self.average_checkpoints}) must not exceed train.keep_checkpoints "
                f"({self.keep_checkpoints})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSearch:
    """`search` in config.json: the search settings of a published model, chosen on validation text."""

    alpha: Annotated[NonNegative, "exponent of the length penalty"] = ALPHA
    split: Annotated[bool, "False for a model trained on lines of several sentences"] = True
    alignment_layer: Annotated[
        Count | None, "decoder layer, counted from 0, whose attention aligns words (unset: the last)"
    ] = None
    confidence_levels: Annotated[tuple[float, ...], "mean log-probabilities per token, rising"] = ()
    confidence: Annotated[tuple[float, ...], "share of good translations of validation text at each level"] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        levels, shares = self.confidence_levels, self.confidence
        if (
            len(levels) != len(shares)
            or list(levels) != sorted(set(levels))
            or not all(0 <= one <= 1 for one in shares)
        ):
            raise UsageError(f"confidence={list(shares)} must have a share for each of rising confidence_levels")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How translations are searched for; the defaults are those of §6.1."""

    beam: Annotated[Positive, "beam size; 1 is greedy"] = BEAM
    alpha: Annotated[NonNegative | None, "length penalty ((5 + length) / 6)^alpha (unset: what the model stores)"] = (
        None
    )
    max_extra: Annotated[Count, "largest number of tokens by which an output exceeds its input"] = 50
    n_best: Annotated[Positive, "number of hypotheses returned"] = 1
    min_length: Annotated[Count, "shortest output in tokens"] = 0
    no_repeat: Annotated[Count, "length of n-grams that may not occur twice (0: any may)"] = 0
    shortlist: Annotated[bool, "limit the output to translations of the source's words, if known"] = True
    split: Annotated[bool | None, "translate each sentence of a line separately (unset: as the model was trained)"] = (
        None
    )
    guard: Annotated[
        bool,
        "search again if an output is empty, repeats itself, copies its source or loses a number",
    ] = True
    sample: Annotated[bool, "sample tokens instead of searching for the most likely ones"] = False
    temperature: Annotated[PositiveFloat, "of sampling: below 1 more conservative, above 1 more diverse"] = 1.0
    top_k: Annotated[Count, "sample from this many most likely tokens (0: from all)"] = 0
    top_p: Annotated[
        Annotated[float, Bounds(gt=0.0, le=1.0)],
        "sample from the most likely tokens of this total probability",
    ] = 1.0
    seed: Annotated[Count, "seed of sampling"] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.n_best > self.beam and not self.sample:
            raise UsageError(f"n_best={self.n_best} requires a beam at least as large, not {self.beam}")
        if self.alpha is not None and self.alpha > MAX_ALPHA:
            raise UsageError(f"alpha={self.alpha:g} must not be larger than {MAX_ALPHA:g}")
        if max(self.beam, self.n_best) > MAX_BEAM:
            raise UsageError(f"beam={self.beam} and n_best={self.n_best} must not be larger than {MAX_BEAM}")

    @property
    def penalty(self) -> float:
        """The exponent of the length penalty; the paper's if neither the user nor the model sets one."""
        return ALPHA if self.alpha is None else self.alpha

    def of_model(self, own: ModelSearch) -> "SearchConfig":
        """Return a copy in which the settings that the user left open are those of the model."""
        return dataclasses.replace(
            self,
            alpha=own.alpha if self.alpha is None else self.alpha,
            split=own.split if self.split is None else self.split,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The content of `config.json`; a run is a function of it and of its text."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.data.tree != (self.model.positions == "tree"):
            raise UsageError("data.tree=true requires model.positions=tree, and vice versa")
        if self.data.max_length >= self.model.max_len:
            raise UsageError(
                f"data.max_length ({self.data.max_length}) must be smaller than model.max_len "
                f"({self.model.max_len}), which also counts the end symbol"
            )


def check_engine(engine: str) -> None:
    """Refuse the name of an engine that does not exist."""
    if engine not in ENGINES:
        raise UsageError(f"there is no engine '{engine}'; choose one of {', '.join(ENGINES)}")
