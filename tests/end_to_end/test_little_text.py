"""Runs on little text: back-translation, a teacher, corrections; killed at any moment, they end with the same bytes."""

import gzip
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from typer.testing import CliRunner

import multihead
from multihead.cli.main import app
from multihead.config.schema import Settings
from multihead.data.marks import BACK_TRANSLATED, DISTILLED
from multihead.data.shards import Shards, read_summary
from multihead.errors import UsageError, UserError
from multihead.runs import synthetic
from multihead.runs.request import TrainingRequest
from multihead.runs.stages import MoreText, train_in_stages
from multihead.runs.train import train
from multihead.storage.model_folder import read_config
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.translator import Translator
from tests.conftest import QUICK, copy_or_reverse, write_pairs

SETTINGS: Settings = {
    **QUICK,
    "train.steps": 8,
    "train.save_every": 2,
    "train.validate_every": 4,
    "train.bleu_sentences": 0,
    "train.alpha": "0.6",
    "data.source_lang": "en",
    "data.target_lang": "de",
}


@dataclass(frozen=True)
class Text:
    """Pairs, and more text on one side."""

    pairs: TrainingRequest
    more_source: Path
    more_target: Path


@pytest.fixture
def text(tmp_path: Path) -> Text:
    source, target = write_pairs(tmp_path, copy_or_reverse(60, seed=1))
    more = copy_or_reverse(90, seed=2)
    more_source, more_target = tmp_path / "more.en", tmp_path / "more.de"
    more_source.write_text("".join(f"{one}\n" for one, _ in more), encoding="utf-8")
    more_target.write_text("".join(f"{two}\n\n" for _, two in more), encoding="utf-8")
    pairs = TrainingRequest(output=tmp_path / "run", source=source, target=target, preset="base", settings=SETTINGS)
    return Text(pairs=pairs, more_source=more_source, more_target=more_target)


def published(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("model.safetensors", "tokenizer.json")]


def table(path: Path) -> list[str]:
    read = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return read.decode().splitlines()


def sources(run: Path, split: str) -> list[tuple[list[str], str]]:
    """Return the reserved pieces and the text of every source."""
    tokenizer, shards = SubwordTokenizer.load(run / "tokenizer.json"), Shards(run / "data", split)
    ids = [shards[pair][0].tolist() for pair in range(len(shards))]
    return [(tokenizer.tokens(tokenizer.reserved_prefix(source)), tokenizer.decode(source)) for source in ids]


def with_output(request: TrainingRequest, name: str) -> TrainingRequest:
    return replace(request, output=request.output.with_name(name))


def test_without_more_text_a_run_is_as_it_was(text: Text) -> None:
    train(text.pairs)
    again = with_output(text.pairs, "again")
    train_in_stages(again, MoreText())
    assert published(again.output) == published(text.pairs.output)
    assert {path.name for path in again.output.iterdir()} == {path.name for path in text.pairs.output.iterdir()}


# Back-translation


def test_text_in_the_target_language_is_translated_back_and_learned(text: Text) -> None:
    train_in_stages(text.pairs, MoreText(monolingual=[text.more_target]))
    run = text.pairs.output
    reverse = read_config(run / "backtranslation" / "reverse")
    assert (reverse.data.source_lang, reverse.data.target_lang, reverse.train.steps) == ("de", "en", 2)
    header, *pairs = table(run / "backtranslation" / "synthetic.tsv.gz")
    assert header == "en\tde"
    translated = [pair.split("\t")[1] for pair in pairs]
    assert set(translated) <= set(text.more_target.read_text(encoding="utf-8").split("\n"))
    assert all(pair.startswith(f"{BACK_TRANSLATED} ") for pair in pairs)
    marks = [pieces for pieces, _ in sources(run, "train")]
    assert [] in marks and [BACK_TRANSLATED] in marks
    assert all(not pieces for pieces, _ in sources(run, "valid"))


def test_a_model_that_translates_back_may_be_given(text: Text) -> None:
    source, target = text.pairs.target, text.pairs.source
    settings = {**SETTINGS, "data.source_lang": "de", "data.target_lang": "en"}
    back = replace(text.pairs, output=text.pairs.output.with_name("back"), source=source, target=target)
    train(replace(back, settings=settings))
    more = MoreText(monolingual=[text.more_target], reverse=str(back.output))
    train_in_stages(text.pairs, more)
    stage = text.pairs.output / "backtranslation"
    assert not (stage / "reverse").exists()
    # The command makes the same pairs, and a run on them the same model.
    output = text.pairs.output.with_name("pairs.tsv")
    arguments = ["backtranslate", str(back.output), "--input", str(text.more_target), "--output", str(output)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert table(output) == table(stage / "synthetic.tsv.gz")
    apart = replace(text.pairs, output=text.pairs.output.with_name("apart"), corpora=[output])
    train(apart)
    assert published(apart.output) == published(text.pairs.output)


def test_a_base_model_of_several_languages_translates_back_itself(text: Text) -> None:
    base = replace(text.pairs, output=text.pairs.output.with_name("base"), both_ways=True)
    train(base)
    fine_tuned = replace(text.pairs, both_ways=True, options={"train.base_model": str(base.output)})
    train_in_stages(fine_tuned, MoreText(monolingual=[text.more_target]))
    stage = text.pairs.output / "backtranslation"
    assert not (stage / "reverse").exists()
    directions = [part.direction for part in read_summary(text.pairs.output / "data").parts]
    assert directions == ["en-de", "en-de", "de-en"]


def test_a_time_limit_is_shared_by_the_stages(text: Text) -> None:
    settings = {name: value for name, value in SETTINGS.items() if name != "train.steps"}
    limited = replace(text.pairs, settings=settings, options={"train.minutes": 2.0})
    with pytest.raises(UsageError, match=r"translates back, in .*--minutes 0.5 is too short"):
        train_in_stages(
            replace(limited, settings={**settings, "train.warmup": 10**6}), MoreText(monolingual=[text.more_target])
        )


def test_text_that_its_share_of_the_time_is_too_short_for_is_left_out(
    text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "PART_LINES", 20)
    more = synthetic.text_to_translate_back("en-de", text.more_source, to=None, beam=1)
    said: list[str] = []
    for name, limit in (("all.tsv", 0.0), ("some.tsv", 1e-6)):
        synthetic.write_pairs(more, "en-de", tmp_path / name, said.append, limit)
    whole, some = table(tmp_path / "all.tsv"), table(tmp_path / "some.tsv")
    assert 1 < len(some) <= 21 < len(whole)
    assert whole[: len(some)] == some
    assert "the rest of the text is left out" in said[-1]


# Distillation


def test_a_student_learns_from_a_teachers_translations_of_all_sources(text: Text) -> None:
    teacher = with_output(text.pairs, "teacher")
    train(teacher)
    run = multihead.train(
        output=text.pairs.output,
        source=str(text.pairs.source),
        target=str(text.pairs.target),
        monolingual=text.more_source,
        teacher=teacher.output,
        preset="base",
        settings=SETTINGS,
    )
    _, *pairs = table(run / "distillation" / "synthetic.tsv.gz")
    lines = [line for file in (text.pairs.source, text.more_source) for line in Path(str(file)).read_text().split("\n")]
    found = [pair.split("\t")[0].removeprefix(f"{DISTILLED} ") for pair in pairs]
    assert set(found) <= set(lines)
    model = multihead.load(teacher.output)
    assert model.translate(found[0], beam=4).text == pairs[0].split("\t")[1]
    assert len(sources(run, "train")) > 60
    assert not [pieces for pieces, _ in sources(run, "train") if pieces]
    references = {line for line in Path(str(text.pairs.target)).read_text().split("\n")}
    shards, tokenizer = Shards(run / "data", "valid"), SubwordTokenizer.load(run / "tokenizer.json")
    assert {tokenizer.decode(shards[pair][1].tolist()) for pair in range(len(shards))} <= references


def test_a_teacher_needs_no_pairs(text: Text) -> None:
    teacher = with_output(text.pairs, "teacher")
    train(teacher)
    alone = TrainingRequest(output=text.pairs.output, preset="base", settings=SETTINGS)
    train_in_stages(alone, MoreText(monolingual=[text.more_source], teacher=str(teacher.output)))
    config = read_config(text.pairs.output)
    assert (config.data.source_lang, config.data.target_lang) == ("en", "de")
    assert read_summary(text.pairs.output / "data").train_pairs > 20


# Corrections


@pytest.mark.long
def test_corrections_are_learned_and_the_rest_is_kept(trained: Path, tmp_path: Path) -> None:
    """As `multihead train --from my-model --corpus corrections.tsv --corpus old.tsv --weight 5 --weight 1`."""
    new_words = str.maketrans("ab", "qr")
    corrections = [(one.translate(new_words), two.translate(new_words)) for one, two in copy_or_reverse(80, seed=9)]
    corrections = [pair for pair in corrections if {"q", "r"} & {*pair[1]}]
    old = copy_or_reverse(200, seed=10)
    for name, pairs in (("corrections", corrections), ("old", old[:150])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{one}\t{two}\n" for one, two in pairs), encoding="utf-8")
    valid_source, valid_target = write_pairs(tmp_path, copy_or_reverse(40, seed=11))
    train(
        TrainingRequest(
            output=tmp_path / "run",
            corpora=[tmp_path / "corrections.tsv", tmp_path / "old.tsv"],
            weights=[5.0, 1.0],
            valid_source=valid_source,
            valid_target=valid_target,
            preset="tiny",
            settings={"train.steps": 200, "train.warmup": 20, "data.source_lang": "en", "data.target_lang": "de"},
            options={"train.base_model": str(trained)},
        )
    )
    before, after = multihead.load(trained), multihead.load(tmp_path / "run")
    assert share_right(before, corrections) < 0.2
    assert share_right(after, corrections) > 0.8
    assert share_right(after, old[150:]) > 0.8


def share_right(model: Translator, pairs: list[tuple[str, str]]) -> float:
    found = model.translate([source for source, _ in pairs])
    return sum(one.text == target for one, (_, target) in zip(found, pairs, strict=True)) / len(pairs)


def test_corrections_are_in_the_languages_of_the_model_and_its_text_is_rehearsed(text: Text) -> None:
    train(text.pairs)
    corrections = text.pairs.output.with_name("corrections.tsv")
    corrections.write_text("".join(f"copy {n} k\tfixed {n} k\n" for n in range(40)), encoding="utf-8")
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith(("model.", "data."))}
    for corpora in ([corrections], [corrections, corrections]):
        output = text.pairs.output.with_name(f"fixed-{len(corpora)}")
        request = TrainingRequest(
            output=output,
            corpora=corpora,
            settings={**settings, "data.max_length": 32, "data.batch_tokens": 100},
            options={"train.base_model": str(text.pairs.output)},
        )
        train(request)
        assert read_config(output).data.languages == ["en", "de"]
        assert len(read_summary(output / "data").parts) == len(corpora) + 1


# Kills


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["multihead.runs.stages", "torch.utils.tensorboard", "matplotlib.figure", "sacrebleu"]
    )
    yield context


WATCHED = ("backtranslation", "distillation", "/run/data")


def train_and_die(request: TrainingRequest, more: MoreText, kill_at: int) -> None:
    """Train, and die at the nth time that a file of the stage or of the corpus is opened, made, renamed or removed."""
    synthetic.PART_LINES = 20
    events = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal events
        if event in ("open", "os.mkdir", "os.rename", "os.replace", "os.remove", "os.rmdir", "shutil.rmtree"):
            name = str(arguments[0])
            events += any(part in name for part in WATCHED) and "tensorboard" not in name
            if events == kill_at > 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    train_in_stages(request, more)


def finish(processes: ForkServerContext, request: TrainingRequest, more: MoreText, kill_at: int = 0) -> int | None:
    process = processes.Process(target=train_and_die, args=(request, more, kill_at))
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("has_teacher", [False, True])
@pytest.mark.parametrize("first", [40, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_in_any_stage_a_run_ends_with_the_same_bytes(
    processes: ForkServerContext, text: Text, first: int, has_teacher: bool
) -> None:
    more, whole = MoreText(monolingual=[text.more_target]), with_output(text.pairs, "whole")
    if has_teacher:
        teacher = with_output(text.pairs, "teacher")
        assert finish(processes, teacher, MoreText()) == 0
        more = MoreText(monolingual=[text.more_source], teacher=str(teacher.output))
    assert finish(processes, whole, more) == 0
    places = set()
    for kill in range(60):
        exit_code = finish(processes, text.pairs, more, kill_at=first + 29 * kill)
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
        places.add(stage_of(text.pairs.output))
    assert finish(processes, text.pairs, more) == 0
    assert published(text.pairs.output) == published(whole.output)
    assert len(places) >= 2, "too few kills to prove anything"


def stage_of(run: Path) -> str:
    """Return how far a run is."""
    if list(run.glob("*/synthetic.json")):
        return "run"
    if (run / "distillation").exists():
        return "translation"
    return "translation" if (run / "backtranslation" / "reverse" / "model.safetensors").exists() else "reverse"


@pytest.mark.parametrize("kill_after", [0, 1, 3])
def test_a_translation_that_was_interrupted_continues_with_the_next_part(
    text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path, kill_after: int
) -> None:
    monkeypatch.setattr(synthetic, "PART_LINES", 20)
    more = synthetic.text_to_translate_back(str(trained), text.more_target, to=None, beam=1)
    synthetic.write_pairs(more, str(trained), tmp_path / "whole.tsv.gz", print)

    def broken() -> Iterator[str]:
        for number, line in enumerate(line for line in more.lines() if line.strip()):
            if number == 20 * kill_after + 10:
                raise KeyboardInterrupt
            yield line

    with pytest.raises(KeyboardInterrupt):
        synthetic.write_pairs(replace(more, lines=broken), str(trained), tmp_path / "pairs.tsv.gz", print)
    said: list[str] = []
    synthetic.write_pairs(more, str(trained), tmp_path / "pairs.tsv.gz", said.append)
    assert (tmp_path / "pairs.tsv.gz").read_bytes() == (tmp_path / "whole.tsv.gz").read_bytes()
    assert any(f"{20 * kill_after} lines are translated already" in line for line in said) == bool(kill_after)
    assert [file.name for file in tmp_path.glob(".pairs*")] == []


# Refusals


def test_what_cannot_be_combined_is_refused_with_a_sentence(text: Text, tmp_path: Path) -> None:
    more = MoreText(monolingual=[text.more_target])
    run = text.pairs.output
    bare = TrainingRequest(output=run)
    for request, message in (
        (bare, "add --source and --target, or --corpus"),
        (replace(bare, data=tmp_path), "which --data and --task exclude"),
        (replace(text.pairs, source=Path("-")), "not standard input"),
    ):
        with pytest.raises(UsageError, match=message):
            train_in_stages(request, more)
    with pytest.raises(UsageError, match="is English by its name"):
        train_in_stages(text.pairs, MoreText(monolingual=[text.more_source]))
    with pytest.raises(UserError, match="there is no file"):
        train_in_stages(text.pairs, MoreText(monolingual=[tmp_path / "none.de"]))
    with pytest.raises(UserError, match="translates into de, not into en"):
        train_in_stages(text.pairs, MoreText(monolingual=[text.more_target], reverse="en-de"))
    with pytest.raises(UsageError, match="add --monolingual"):
        MoreText(reverse="en-de")
    with pytest.raises(UsageError, match="--teacher needs text"):
        train_in_stages(bare, MoreText(teacher="en-de"))
    result = CliRunner().invoke(app, ["plan", "--monolingual", str(text.more_target)])
    assert "`plan` estimates a run on text that exists" in str(result.exception)


def test_a_run_without_more_text_does_not_get_it_later(text: Text) -> None:
    train(text.pairs)
    with pytest.raises(UsageError, match="choose another --output"):
        train_in_stages(text.pairs, MoreText(monolingual=[text.more_target]))


def test_a_run_with_more_text_resumes_without_its_first_stages(text: Text) -> None:
    more = MoreText(monolingual=[text.more_target])
    train_in_stages(text.pairs, more)
    for path in sorted((text.pairs.output / "backtranslation" / "reverse").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    longer = replace(text.pairs, settings={**SETTINGS, "train.steps": 10})
    train_in_stages(longer, more)
    assert read_config(text.pairs.output).train.steps == 10
    text.more_target.write_text("other text\n", encoding="utf-8")
    with pytest.raises(UsageError, match="started on other text"):
        train_in_stages(longer, more)
