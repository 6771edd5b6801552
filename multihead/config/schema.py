"""TODO."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from multihead.errors import UsageError

BEAM, ALPHA = 4, 0.6  # §6.1: the width of the beam, and the exponent of the length penalty

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]

Mixers = Literal[
    "attention", "local", "linformer", "bigbird", "lstm", "gru", "convolution", "dilated", "separable", "gated"
]
MAX_TREE_TOKENS = 4000  # tokens of a sentence whose places fit beside their ids
NOT_CAUSAL = {"linformer": "Linformer", "bigbird": "BigBird"}  # they see the whole sentence, and what follows with it

_STRICT = ConfigDict(extra="forbid")


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
    attention_score: Literal["scaled", "dot", "additive"] = (
        "scaled"  # of attention: §3.2.1, or without the root, or Bahdanau's
    )
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
    tie_embeddings: Literal["all", "target", "none"] = "all"  # embeddings that share a matrix with the output (§3.4)
    pad_id: Count = 0  # the id that fills up a batch

    def __post_init__(self) -> None:
        if self.pad_id >= self.vocab_size:
            raise UsageError(f"model.pad_id {self.pad_id} is not in a vocabulary of {self.vocab_size}")
        if name := NOT_CAUSAL.get(self.decoder_mixer):
            raise UsageError(
                f"model.decoder_mixer={self.decoder_mixer}: {name} lets a place see what follows it, which a decoder "
                "has yet to say; it is for the encoder"
            )
        # Relative positions are part of the attention's score, so there has to be one, and over all distances.
        needed = {"attention_score": "scaled", "encoder_mixer": "attention", "decoder_mixer": "attention"}
        for name, value in needed.items() if self.positions in ("relative", "tree") else ():
            if getattr(self, name) != value:
                raise UsageError(
                    f"model.positions={self.positions} needs model.{name}={value}, not {getattr(self, name)}"
                )

    @property
    def variants(self) -> list[str]:
        """The settings by which layers are other than the paper's; multihead/variants.py makes those."""
        paper = {"attention_score": "scaled", "encoder_mixer": "attention", "decoder_mixer": "attention"}
        names = [f"model.{name}={getattr(self, name)}" for name, its in paper.items() if getattr(self, name) != its]
        return [*names, f"model.positions={self.positions}"] if self.positions in ("relative", "tree") else names


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class DataConfig:
    """What text a model is trained on, and how it is cut into batches (§5.1)."""

    source_lang: str = ""  # such as en; guessed from a file called a.en
    target_lang: str = ""  # such as de
    license: str = ""  # of the text, for the model's card
    tokenizer: Literal["bpe", "wordpiece", "unigram"] = "bpe"  # §5.1; unigram is for imported models
    bpe_dropout: Share = 0.0  # chance that a merge is left out while training (0: off, as in the paper)
    casing_noise: Share = (
        0.0  # chance that a source is seen in small letters or without its final mark, as typed in haste
    )
    tree: bool = False  # a source line is words, a tab, and the number of each word's head (trees.py)
    clean: bool = True  # drop copies, duplicates and pairs of very unequal length
    max_ratio: PositiveFloat = 3.0  # longest side / shortest side, in characters, relative to the corpus's median ratio
    unicode: Literal["nfc", "none"] = "nfc"  # normalization of training text and input; none: text is left unchanged
    max_length: Positive = 256  # tokens of one sentence; longer pairs are dropped
    batch_tokens: Positive = 25_000  # of source, and as many of target, padding counted; of all processes together

    def __post_init__(self) -> None:
        if self.batch_tokens <= self.max_length:
            raise UsageError(
                f"data.batch_tokens ({self.batch_tokens}) must be larger than data.max_length "
                f"({self.max_length}), so that every sentence fits into a batch"
            )
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise UsageError("data.bpe_dropout needs data.tokenizer=bpe: word pieces have no merges to drop")
        if self.tree and (self.bpe_dropout or self.casing_noise):
            raise UsageError(
                "data.tree is for sources as they are: data.bpe_dropout and data.casing_noise change their words"
            )
        if self.tree and self.max_length > MAX_TREE_TOKENS:
            raise UsageError(f"data.tree takes sentences of up to {MAX_TREE_TOKENS:,} tokens, not {self.max_length:,}")


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class TrainConfig:
    """Optimiser, schedule and regularisation of §5.3 and §5.4, and when a run saves, validates and stops."""

    base_model: str = ""  # model whose shape, vocabulary and weights a run begins with; without one, with chance
    steps: Positive = 100_000  # updates of the weights
    minutes: NonNegative = 0.0  # stop after this wall time, everything included (0: no limit)
    warmup: Positive = 4000  # steps over which the rate rises (§5.3)
    lr_scale: PositiveFloat = 1.0  # multiplies eq. (3)
    lr_decay: Literal["sqrt", "linear"] = "sqrt"  # after the warm-up: eq. (3), or straight down to 0 at the run's end
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
    keep_checkpoints: Positive = 5  # newest checkpoints kept, besides the best
    average_checkpoints: Positive = 5  # checkpoints averaged into the published model (§6.1)
    patience: Count = 0  # validations without improvement before stopping (0: never)
    alpha: NonNegative | Literal["auto"] = ALPHA  # length penalty of the published model; auto: the best on validation
    bleu_sentences: Count = 1000  # validation sentences translated for BLEU while training (0: none)

    def __post_init__(self) -> None:
        if self.average_checkpoints > self.keep_checkpoints:
            raise UsageError(
                f"train.average_checkpoints ({self.average_checkpoints}) needs train.keep_checkpoints ({self.keep_checkpoints}) to be at least as large"
            )


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
            raise UsageError(f"{self.n_best} best translations need a beam of at least as many, got {self.beam}")

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
            raise UsageError(
                "data.tree=true and model.positions=tree go together: trees beside the text, and their use"
            )
        if self.data.max_length >= self.model.max_len:
            raise UsageError(
                f"data.max_length ({self.data.max_length}) must be smaller than model.max_len "
                f"({self.model.max_len}), which also counts the end symbol"
            )


Settings = Mapping[str, object]

ENGINES = (
    "auto",
    "torch",
    "ctranslate2",
    "ctranslate2:float32",
)  # what can translate; CTranslate2 with int8 or float32


def check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise UsageError(f"there is no engine '{engine}'; there are {', '.join(ENGINES)}")
