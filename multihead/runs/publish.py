"""Publish a run: choose the weights, tune the search on validation text, and write the model folder with its card."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from multihead.config.directions import languages_of
from multihead.config.schema import BEAM, SearchConfig, TrainConfig
from multihead.console import Log
from multihead.data.augment import noisy_copies
from multihead.data.shards import Shards, corpus_identity, read_summary
from multihead.errors import UserError
from multihead.evaluation.by_direction import positions_of
from multihead.evaluation.calibration import MIN_PAIRS, calibrate
from multihead.evaluation.metrics import scores
from multihead.hardware.device import matmul_flops
from multihead.hardware.flops import counted_flops
from multihead.interop.marian.format import ORIGIN
from multihead.interop.marian.importer import forbid_source_pieces
from multihead.model.weights import Tensors, count_parameters, load_weights, to_arrays
from multihead.runs.base_model import SHORTLIST_FOLDER
from multihead.runs.learn_shortlist import learn_shortlists
from multihead.runs.model_card import write_card
from multihead.runs.publishing_time import N_SCORED
from multihead.runs.tuning import MAX_SENTENCES, Tuned, Tuner, ValidationText, shortlists
from multihead.storage.checkpoints import saved_steps, valid_checkpoints
from multihead.storage.files import write_text_atomic
from multihead.storage.language_detector import load_detector, save_detector
from multihead.storage.model_folder import WEIGHTS, Provenance, PublishedScore, read_search, save_model
from multihead.storage.shortlist import FILE, Shortlist, load_shortlist
from multihead.training.checkpoint import average_checkpoints, load_checkpoint
from multihead.training.metrics import Metrics, perplexity
from multihead.training.trainer import Trainer
from multihead.training.validation import TranslatedPair, Validator
from multihead.translation.engine import Segment

MIN_BLEU_GAIN = 0.5  # BLEU; a smaller difference between two models may be chance


class Candidate(NamedTuple):
    """Weights that may be published."""

    name: str
    weights: Tensors
    loss: float  # on validation text


@dataclass(frozen=True, slots=True)
class Published:
    """A model that was published."""

    provenance: Provenance
    tuned: Tuned

    def summary(self) -> str:
        shortlist = "a shortlist" if self.tuned.shortlist else "no shortlist, which would cost BLEU"
        alpha = self.tuned.search.alpha
        return f"published {self.provenance.published}; search with beam {BEAM}, alpha {alpha:g} and {shortlist}:"

    def metrics(self) -> Metrics:
        losses = {f"valid_{name}": value for name, value in self.provenance.validation.items()}
        return {**losses, "published_bleu": self.provenance.scores[0].value, "published": 1.0}

    def examples(self, validator: Validator, n: int) -> list[TranslatedPair]:
        """Return the first validation pairs with their translations."""
        return validator.translate(n, SearchConfig().of_model(self.tuned.search), self.tuned.shortlist)


def publish(trainer: Trainer, validator: Validator, output: Path, log: Log) -> Published:
    """Publish the model of a complete run.

    Everything is computed before anything is written. The weights carry the step and are written last, so a publication
    that is interrupted counts as none and is repeated.
    """
    candidate = select_candidate(trainer, validator, output / "checkpoints", log)
    forbid_source_pieces(candidate.weights, output, trainer.config.model)
    load_weights(trainer.full_model, candidate.weights, output)
    tuner = Tuner(trainer.full_model, trainer.tokenizer, _validation_text(validator))
    tuned = tuner.tune(trainer.config.train, _learn_shortlists(trainer, output))
    pairs = validator.translate(N_SCORED, SearchConfig().of_model(tuned.search), tuned.shortlist)
    if len(pairs) >= MIN_PAIRS:
        log_probs, translations, references = zip(*(pair[1:4] for pair in pairs), strict=True)
        tuned = tuned.calibrated(*calibrate(log_probs, translations, references))
    provenance = _provenance(trainer, pairs, candidate, output / "data")
    card = write_card(output.name, trainer.config, read_summary(output / "data"), provenance)
    if tuned.shortlist:
        tuned.shortlist.save(output)
    else:
        (output / FILE).unlink(missing_ok=True)  # of an earlier publication
    if detector := load_detector(output / "data"):
        save_detector(detector, output)
    write_text_atomic(output / "README.md", card)
    vocabulary = trainer.tokenizer.files()
    save_model(output, to_arrays(candidate.weights), trainer.config, vocabulary, provenance, tuned.search)
    return Published(provenance, tuned)


def publish_average(run: Path, output: Path, last: int) -> list[int]:
    """Write the average of the last checkpoints of a run (§6.1) as a model folder, and return their steps."""
    steps = saved_steps(run / "checkpoints")[-last:]
    if not steps:
        raise UserError(f"there are no checkpoints in {run}")
    folders = [run / "checkpoints" / f"step-{step}" for step in steps]
    newest = load_checkpoint(folders[-1])
    weights = average_checkpoints(folders)
    forbid_source_pieces(weights, run, newest.config.model)
    output.mkdir(parents=True, exist_ok=True)
    if (run / ORIGIN).is_dir():
        shutil.copytree(run / ORIGIN, output / ORIGIN, dirs_exist_ok=True)
    if shortlist := load_shortlist(run):
        shortlist.save(output)
    if detector := load_detector(run):
        save_detector(detector, output)
    provenance = Provenance(steps=steps[-1], published=f"the average of steps {', '.join(map(str, steps))}")
    save_model(output, to_arrays(weights), newest.config, newest.vocabulary, provenance, read_search(run))
    return steps


# Weights


def scheduled_steps(checkpoints: Path, config: TrainConfig, last: int) -> list[int]:
    """Return the steps of the checkpoints that `train.save_every` and the last step account for.

    Checkpoints that were saved for another reason are left out, so that an interruption does not change the average.
    """
    return [step for step in saved_steps(checkpoints) if step % config.save_every == 0 or step == last]


def select_candidate(trainer: Trainer, validator: Validator, checkpoints: Path, log: Log) -> Candidate:
    """Return the average of the last checkpoints (§6.1), or the checkpoint of the lowest loss if that is better.

    A model that overfits has a rising loss long before its translations get worse, so an average that translates
    clearly better is chosen despite its loss.
    """
    train, state = trainer.config.train, trainer.state
    last = scheduled_steps(checkpoints, train, state.step)[-train.average_checkpoints :]
    average = _average(validator, _valid(checkpoints, last, log))
    if state.best_loss is None or average.loss <= state.best_loss:
        return average
    if not (folders := _valid(checkpoints, [state.best_step], log)):
        return average
    best = Candidate(f"step {state.best_step:,}", average_checkpoints(folders), state.best_loss)
    n_pairs = train.bleu_sentences
    if n_pairs and _bleu(validator, average, n_pairs) > _bleu(validator, best, n_pairs) + MIN_BLEU_GAIN:
        return average
    return best


def _average(validator: Validator, folders: list[Path]) -> Candidate:
    weights = average_checkpoints(folders)
    load_weights(validator.model, weights, folders[-1])
    return Candidate(f"the average of {len(folders)} checkpoints", weights, validator.loss())


def _valid(checkpoints: Path, steps: Iterable[int], log: Log) -> list[Path]:
    """Return the checkpoints of these steps; damaged ones are reported and left out."""
    return list(valid_checkpoints([checkpoints / f"step-{step}" for step in steps], log, [WEIGHTS]))


def _bleu(validator: Validator, candidate: Candidate, n_pairs: int) -> float:
    load_weights(validator.model, candidate.weights, Path(candidate.name))
    return validator.bleu(n_pairs)


# Search


def _validation_text(validator: Validator) -> ValidationText:
    shards, decode = validator.shards, validator.tokenizer.decode
    pairs = [shards[pair] for pair in range(min(len(shards), MAX_SENTENCES))]
    return ValidationText(
        segments=[_segment(shards, pair) for pair in range(len(pairs))],
        sources=[decode(source.tolist()) for source, _ in pairs],
        references=[decode(target.tolist()) for _, target in pairs],
        source_lang=validator.config.source_lang,
        target_lang=validator.config.target_lang,
        directions=[validator.direction_of(pair) for pair in range(len(pairs))] if shards.labels else [],
    )


def _segment(shards: Shards, pair: int) -> Segment:
    heads = shards.source_heads(pair)
    return Segment(shards[pair][0].tolist(), None if heads is None else heads.tolist())


def _learn_shortlists(trainer: Trainer, output: Path) -> Sequence[Shortlist]:
    """Learn shortlists from the text, smallest first; that of a base model, which covers more words, is merged in."""
    base, train = None, trainer.config.train
    if train.base_model and not train.new_vocabulary:
        # Older versions kept the base model's shortlist in the run's folder itself.
        base = load_shortlist(output / SHORTLIST_FOLDER) or load_shortlist(output)
        if base is None:
            return []  # the base model's output is not restricted, so neither is this one's
    noisy = noisy_copies(trainer.tokenizer, trainer.config.data)
    learned = shortlists(learn_shortlists(trainer.train_shards, trainer.config.model.vocab_size, noisy))
    return [shortlist.union(base) for shortlist in learned] if base else learned


# Provenance


def _provenance(trainer: Trainer, pairs: Sequence[TranslatedPair], candidate: Candidate, data: Path) -> Provenance:
    """Return how the model was made, what it cost and how its translations of validation pairs score."""
    state, config = trainer.state, trainer.config
    capacity = trainer.group.world_size * matmul_flops(trainer.device)
    return Provenance(
        steps=state.step,
        published=candidate.name,
        started_from=config.train.base_model or None,
        corpus_sha256=corpus_identity(data),
        parameters=count_parameters(trainer.full_model),
        target_tokens=state.tokens_seen,
        seconds=round(state.seconds, 1),
        minutes=config.train.minutes or None,
        matmul_flops=capacity,
        flops_by_time=state.seconds * capacity,
        flops_counted=counted_flops(config.model, state.tokens_seen),
        validation={"loss": candidate.loss, "perplexity": perplexity(candidate.loss)},
        scores=_scores(pairs, config.data.target_lang),
    )


def _scores(pairs: Sequence[TranslatedPair], target_lang: str) -> tuple[PublishedScore, ...]:
    """Return the scores of translations of validation pairs; of several directions the mean BLEU comes first."""
    by_direction = positions_of([pair.direction for pair in pairs])
    published: list[PublishedScore] = []
    for direction, places in sorted(by_direction.items()):
        own = [pairs[place] for place in places]
        target = languages_of(direction)[1] if direction else target_lang
        name = f"validation{' ' if direction else ''}{direction}, {len(own)} sentences"
        found = scores([pair.translation for pair in own], [pair.reference for pair in own], target)
        published += [PublishedScore(set=name, **asdict(score)) for score in found]
    if len(by_direction) > 1:
        bleu = [score for score in published if score.name == "BLEU"]
        name = f"validation, mean of {len(by_direction)} directions"
        mean = PublishedScore(set=name, name="BLEU", value=fmean(one.value for one in bleu), signature="mean")
        published.insert(0, mean)
    return tuple(published)
