"""What a user asks for, and what it is settled as: text, preset, vocabulary, dropout; a run is a function of that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from multihead import checkpoint, config, corpus, presets, shortlist
from multihead.config import ConfigError, ModelConfig, Overrides, RunConfig, TrainConfig, UserError, configure
from multihead.corpus import Files, ParallelText, Summary, Talk
from multihead.cost import counted_flops
from multihead.devices import matmul_flops, pick_device, pick_precision
from multihead.files import replace_text
from multihead.start import Start, start_from
from multihead.trainer import learning_rate, training_seconds

USED_CAPACITY = {torch.float32: 0.4, torch.bfloat16: 0.25}  # of the machine's, by a small model in training
MODEL_VOCAB = "model.vocab_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for. Without `source` and `data` the embedded corpus is taken."""

    output: Path
    source: Files | None = None  # one corpus, or several
    target: Files | None = None
    weights: Sequence[float] = ()  # how often the pairs of each corpus come in an epoch; once, if nothing is said
    valid_source: Path | None = None
    valid_target: Path | None = None
    data: Path | None = None  # a corpus that `multihead prepare` made
    preset: str | None = None
    settings: Overrides = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ConfigError(f"--{one} and --{other} go together".replace("_", "-"))
        if self.data and (self.source or self.valid_source):
            raise ConfigError("--data is a corpus that is prepared already: it takes no --source or --valid-source")
        if self.valid_source and not self.source:
            raise ConfigError("--valid-source needs --source")

    def text(self) -> ParallelText:
        if self.source and self.target:
            valid = (self.valid_source, self.valid_target) if self.valid_source and self.valid_target else None
            return corpus.from_files(self.source, self.target, valid, self.weights)
        return corpus.embedded()

    def languages(self) -> Overrides:
        if not self.source or not self.target:
            return corpus.EMBEDDED_LANGUAGES
        return corpus.languages_of(self.source, self.target)


@dataclass(frozen=True)
class Budget:
    """A text, and the time there is to read it in."""

    train: TrainConfig
    vocab_size: int
    n_tokens: int  # of target
    n_processes: int

    def passes_of_tiny(self) -> float:
        """How often the smallest preset would see each pair in that time; 0 if there is no limit."""
        tiny = configure(presets.preset("tiny"), {MODEL_VOCAB: self.vocab_size})
        return self._passes_in_time(tiny.model) if self.train.minutes else 0.0

    def expected_passes(self, planned: RunConfig) -> float:
        """How often the run will see each pair, by the limit that is nearer."""
        train = planned.train
        by_steps = train.steps * train.accumulate * planned.data.batch_tokens / self.n_tokens
        return min(by_steps, self._passes_in_time(planned.model)) if train.minutes else by_steps

    def _passes_in_time(self, model: ModelConfig) -> float:
        return training_seconds(self.train) * self._capacity / counted_flops(model, self.n_tokens)

    @cached_property
    def _capacity(self) -> float:
        """What a small model gets of the machine, measured: operations a second."""
        device = pick_device()
        precision = pick_precision(self.train.precision, device)
        return USED_CAPACITY[precision] * self.n_processes * matmul_flops(device, precision)


def settled(request: Request, talk: Talk, n_processes: int) -> tuple[RunConfig, Path]:
    """The configuration and the corpus of a run: of the one that is there already, or of a new one."""
    return _take_up(request) or _begin(request, talk, n_processes)


def _take_up(request: Request) -> tuple[RunConfig, Path] | None:
    """The configuration and corpus of a run that is there already; what makes it another run is refused."""
    data = request.output / "data"
    if not (request.output / "config.json").exists():
        return None
    stored = checkpoint.read_config(request.output)
    asked = configure(presets.preset(request.preset) if request.preset else {}, request.settings, start=stored)
    was, now = config.flatten(stored), config.flatten(asked)
    for name in was:
        if was[name] != now[name] and name not in config.CHANGEABLE:
            raise ConfigError(
                f"the run in {request.output} has {name}={was[name]}, not {now[name]}: choose another --output"
            )
    summary = corpus.read_summary(data)
    if request.source and not summary.is_of(request.text()):
        raise UserError(f"the run in {request.output} was begun with other text: choose another --output")
    if asked != stored:
        provenance = checkpoint.read_provenance(request.output)
        replace_text(request.output / "config.json", config.to_json(asked, provenance))
    return asked, data


def _begin(request: Request, talk: Talk, n_processes: int) -> tuple[RunConfig, Path]:
    """Prepare the text, and settle what was left open: the preset and the size of the vocabulary."""
    # A wrong setting is refused before an hour is spent on the text.
    asked = configure(presets.preset(request.preset) if request.preset else {}, request.languages(), request.settings)
    start = start_from(asked.train.start_from) if asked.train.start_from else None
    if start:
        asked = start.kept_in(asked, request.settings)
    data = request.output / "data"
    summary = corpus.read_summary(request.data) if request.data else _prepare(request, asked, start, data, talk)
    if start:
        start.check_vocabulary(request.data or data)
    if request.data and not data.exists():
        data.symlink_to(request.data.resolve(), target_is_directory=True)
    settled = {
        MODEL_VOCAB: summary.vocab_size,
        "data.tokenizer": summary.tokenizer,
        "data.max_length": summary.max_length,
    }
    languages = {"data.source_lang": summary.source_lang, "data.target_lang": summary.target_lang}
    budget = Budget(asked.train, summary.vocab_size, corpus.Shards(data, "train").target_tokens(), n_processes)
    fitting = _fitting_preset(request, summary.train_pairs, start, budget, talk)
    if not request.preset and "model.dropout" not in fitting:
        passes = budget.expected_passes(configure(fitting, request.settings, settled))
        dropout = presets.dropout_for(summary.train_pairs, passes)
        fitting = {**fitting, "model.dropout": dropout}
        talk(f"about {passes:.2g} passes over the text: dropout {dropout:g} (--set model.dropout=0.2 takes another)")
    final = configure(fitting, languages, request.settings, settled)
    if start and (words := shortlist.load(start.folder)):
        words.save(request.output)
    replace_text(request.output / "config.json", config.to_json(final))
    talk(_in_words(final))
    return final, data


def _fitting_preset(request: Request, n_pairs: int, start: Start | None, budget: Budget, talk: Talk) -> Overrides:
    """The preset that was asked for, or that fits text and time; of a model to start from it says only how to train."""
    passes = 0.0 if request.preset or start else budget.passes_of_tiny()
    name, why = (request.preset, "") if request.preset else presets.preset_for(n_pairs, passes)
    if start:
        talk(f"starting from {start.name}: its shape and vocabulary, trained as in preset {name}, but more gently")
        return {**presets.gentler(presets.preset(name)), **start.kept}
    if why:
        talk(f"{n_pairs:,} pairs: preset {name}; {why} (--preset takes another)")
    return presets.preset(name)


def _in_words(final: RunConfig) -> str:
    """What was settled, and what sets it otherwise."""
    model, train = final.model, final.train
    peak = learning_rate(train.warmup, model.d_model, train)
    return (
        f"{model.encoder_layers}+{model.decoder_layers} layers of {model.d_model}, dropout {model.dropout:g}, "
        f"{model.vocab_size:,} pieces, batches of {final.data.batch_tokens:,} tokens, a rate of up to {peak:.1e} "
        f"after {train.warmup:,} steps"
    )


def _prepare(request: Request, asked: RunConfig, start: Start | None, data: Path, talk: Talk) -> Summary:
    text = request.text()
    if text.description:
        talk(text.description)
    if (data / "corpus.json").exists():  # the run was cut off between preparing and training
        summary = corpus.read_summary(data)
        if summary.is_of(text) and summary.tokenizer == asked.data.tokenizer:
            return summary
    if start:
        return corpus.prepare(text, data, asked.data, start.tokenizer, talk)
    vocab_size = asked.model.vocab_size if MODEL_VOCAB in request.settings else None
    return corpus.prepare(text, data, asked.data, vocab_size, talk)
