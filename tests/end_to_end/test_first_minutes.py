"""The first five minutes: what a new user types, mistakes included. Each mistake has a message that says what to do."""

import errno
import gzip
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multihead.cli.main import COMMANDS, app
from multihead.concurrency import n_cores
from multihead.console import Progress, run_and_report_errors, set_verbosity
from multihead.hardware import load
from multihead.storage.files import BUNDLED
from multihead.text.file_formats import recognize
from multihead.text.language import looks_like, mostly_looks_like
from multihead.text.lines import TextInput

Run = Callable[..., "Ended"]


class Ended:
    """The exit status of a command, and what it wrote."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def refused(self, status: int, *words: str) -> None:
        assert (self.status, self.out) == (status, ""), self.err
        for word in words:
            assert word in self.err
        assert "Traceback" not in self.err


@pytest.fixture
def multihead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Ended:
        with pytest.raises(SystemExit) as ended:
            run_and_report_errors(lambda: app([str(argument) for argument in arguments], prog_name="multihead"))
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    yield run
    set_verbosity(quiet=False)


ENGLISH = [f"This is the sentence of the day, and it is number {n}." for n in range(40)]
GERMAN = [f"Das ist der Satz der Woche, und er ist die Nummer {n}." for n in range(40)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


# Files that are not plain text

TMX = """<?xml version="1.0" encoding="utf-8"?>
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>Good <bpt i="1"/>morning</seg></tuv><tuv xml:lang="de"><seg>Guten
Morgen</seg></tuv></tu><tu><tuv xml:lang="en"><seg>Thanks</seg></tuv><tuv xml:lang="de"><seg>Danke</seg></tuv></tu>
</body></tmx>
"""
XLIFF = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en"><body>
<trans-unit id="1"><source>Good morning</source><target>Guten Morgen</target></trans-unit>
<trans-unit id="2"><source>Not translated</source></trans-unit>
<trans-unit id="3"><source>Thanks</source><target>Danke</target></trans-unit>
</body></file></xliff>
"""
PO = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

#: a.c:1
msgid "Good "
"morning"
msgstr "Guten Morgen"

msgid "Thanks"
msgstr "Danke"

msgid "Not translated"
msgstr ""
"""
CSV = 'Good morning,Guten Morgen\n"Thanks",Danke\n'
TSV = "Good morning\tGuten Morgen\nThanks\tDanke\n"
JSONL = '{"id": 1, "en": "Good morning", "de": "Guten Morgen"}\n{"id": 2, "en": "Thanks", "de": "Danke"}\n'


@pytest.mark.parametrize("name", ["corpus", "my corpus.txt", "corpus.txt.gz"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TMX, "a translation memory (TMX)"),
        (XLIFF, "an XLIFF file"),
        (PO, "a gettext catalog (PO)"),
        (TSV, "a table (TSV)"),
        (JSONL, "JSON Lines"),
    ],
)
def test_another_format_is_recognized_and_the_command_in_the_message_converts_it(
    multihead: Run, tmp_path: Path, name: str, text: str, words: str
) -> None:
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    other = write(tmp_path / "other", GERMAN)
    ended = multihead("evaluate", "en-de", "--source", name, "--reference", other)
    ended.refused(1, words, "--source takes plain text with one sentence per line")
    command = ended.err.partition("Convert it:")[2].strip()
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "source.txt").read_text(encoding="utf-8") == "Good morning\nThanks\n"
    assert (tmp_path / "target.txt").read_text(encoding="utf-8") == "Guten Morgen\nDanke\n"


def test_training_reads_other_formats_with_the_option_in_the_message(multihead: Run, tmp_path: Path) -> None:
    pairs = zip(ENGLISH, GERMAN, strict=True)
    (tmp_path / "my corpus").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    other = write(tmp_path / "other", GERMAN)
    ended = multihead("train", "--source", "my corpus", "--target", other, "--output", "run")
    ended.refused(1, "a table (TSV)", "pass it alone, with --corpus 'my corpus'")
    assert not (tmp_path / "run").exists()
    languages = ("--source-lang", "en", "--target-lang", "de")
    ended = multihead("prepare", "--corpus", "my corpus", *languages, "--output", "data")
    assert "read 40 pairs" in ended.err


@pytest.mark.parametrize("command", ["train", "prepare", "plan"])
@pytest.mark.parametrize("option", ["--source", "--target"])
def test_a_corpus_given_as_one_side_is_named_before_the_other_side_is_missed(
    multihead: Run, tmp_path: Path, command: str, option: str
) -> None:
    write(tmp_path / "c.tmx", [TMX])
    multihead(command, option, "c.tmx", "--output", "run").refused(1, "(TMX)", "pass it alone, with --corpus c.tmx")
    write(tmp_path / "a.en", ENGLISH)
    multihead(command, option, "a.en", "--output", "run").refused(2, "--source and --target must be given together")


def test_commas_make_a_table_only_if_the_name_says_so(multihead: Run, tmp_path: Path) -> None:
    for name in ("corpus.csv", "corpus.txt"):
        (tmp_path / name).write_text(CSV, encoding="utf-8")
    other = write(tmp_path / "other", GERMAN[:2])
    ended = multihead("evaluate", "en-de", "--source", "corpus.csv", "--reference", other)
    ended.refused(1, "a table (CSV)")
    subprocess.run(ended.err.partition("Convert it:")[2].strip(), shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "target.txt").read_text(encoding="utf-8") == "Guten Morgen\nDanke\n"
    assert "table" not in multihead("prepare", "--source", "corpus.txt", "--target", other, "--output", "data").err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xfd7zXZ\x00\x00\x04", "xz -d corpus"),
        (b"BZh91AY", "bzip2 -d corpus"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd -d corpus"),
        (b"\x1f\x8b\x08\x00", "Rename it so that its name ends in .gz"),
        (b"%PDF-1.7\n", "Save its text as plain text"),
        (b"PAR1\x15\x04\x15", "with --corpus corpus"),
        (b'{"translation": {"en": "a", "de": "b"}}\n', "with --corpus corpus"),
    ],
)
def test_a_file_that_no_command_converts_gets_advice(
    multihead: Run, tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "corpus").write_bytes(content)
    other = write(tmp_path / "other", GERMAN)
    ended = multihead("prepare", "--source", other, "--target", "corpus", "--output", "data")
    ended.refused(1, "but --target takes plain text", words)


def test_an_archive_and_an_office_document(multihead: Run, tmp_path: Path) -> None:
    for name, advice in (("corpus.zip", "unzip corpus.zip"), ("letter.docx", "Save its text as plain text")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("corpus.en", "text")
        multihead("translate", "en-de", "--input", name).refused(1, "--input takes plain text", advice)


@pytest.mark.parametrize(("text", "words"), [(TMX, "(TMX)"), (XLIFF, "XLIFF"), (PO, "(PO)"), (JSONL, "JSON Lines")])
def test_markup_is_not_translated_as_text(multihead: Run, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "corpus").write_text(text, encoding="utf-8")
    multihead("translate", "en-de", "-i", "corpus").refused(1, words, "--input takes plain text", "Convert it")


def test_the_lines_of_a_table_are_translated(multihead: Run, tmp_path: Path) -> None:
    (tmp_path / "corpus.tsv").write_text(TSV, encoding="utf-8")
    ended = multihead("translate", "en-de", "-i", "corpus.tsv")
    assert (ended.status, ended.out.count("\n")) == (0, 2)


def test_text_with_dependency_trees_is_not_a_table(tmp_path: Path) -> None:
    assert not recognize(write(tmp_path / "a.en", [f"A man rides {n}\t2 3 0 3" for n in range(40)]))
    assert recognize(write(tmp_path / "a.en", [f"A man rides {n}\tEin Mann" for n in range(40)]))


def test_other_formats_are_refused_by_evaluate_too(multihead: Run, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text(TSV, encoding="utf-8")
    multihead("evaluate", "en-de", "--source", "test.tsv", "--reference", "test.tsv").refused(1, "a table (TSV)")


# Languages


@pytest.mark.parametrize("command", ["train", "prepare", "plan"])
def test_swapped_files_are_noticed_by_their_names(multihead: Run, tmp_path: Path, command: str) -> None:
    files = ("--source", write(tmp_path / "a.de", ["x"] * 9), "--target", write(tmp_path / "a.en", ["y"] * 9))
    ended = multihead(command, *files, "--source-lang", "en", "--target-lang", "de", "--output", "run")
    ended.refused(2, "source and target are swapped", "a.de is German", "Swap the two files")
    assert not (tmp_path / "run").exists()


def test_swapped_files_are_noticed_by_their_text(multihead: Run, tmp_path: Path) -> None:
    files = ("--source", write(tmp_path / "one", GERMAN), "--target", write(tmp_path / "two", ENGLISH))
    languages = ("--source-lang", "en", "--target-lang", "de")
    multihead("prepare", *files, *languages, "--output", "data").refused(2, "by their text", "two is English")
    right = ("--source", tmp_path / "two", "--target", tmp_path / "one")
    assert multihead("prepare", *right, *languages, "--output", "data").status == 0


def test_swapped_validation_files_are_noticed(multihead: Run, tmp_path: Path) -> None:
    files = ("--source", write(tmp_path / "a.en", ENGLISH), "--target", write(tmp_path / "a.de", GERMAN))
    valid = ("--valid-source", tmp_path / "a.de", "--valid-target", tmp_path / "a.en")
    multihead("prepare", *files, *valid, "--output", "data").refused(2, "swapped")


def test_swapped_test_files_are_noticed(multihead: Run, tmp_path: Path) -> None:
    files = ("--source", write(tmp_path / "one", GERMAN), "--reference", write(tmp_path / "other", ENGLISH))
    multihead("evaluate", "en-de", *files).refused(1, "--source and --reference may be swapped")


def test_swapped_test_files_are_noticed_by_their_names(multihead: Run, tmp_path: Path) -> None:
    files = ("--source", write(tmp_path / "a.de", ["42"]), "--reference", write(tmp_path / "a.en", ["42"]))
    ended = multihead("evaluate", "en-de", *files)
    ended.refused(1, "a.de is German by its name", "--source and --reference are swapped")


def test_text_in_the_target_language_gets_a_warning(multihead: Run) -> None:
    ended = multihead("translate", "en-de", "Wo ist der Bahnhof?", "Ich habe heute keine Zeit.", "Thank you.")
    assert ended.status == 0
    assert ended.err.count("the text looks like German, but this model translates from English") == 1
    assert "2 lines look like" in ended.err


@pytest.mark.parametrize("text", ["Tom Müller", "Berlin", "Die Hard", "Ja.", "War, Hamburg, Der Spiegel", "Hat!", "42"])
def test_names_and_short_texts_get_no_warning(text: str) -> None:
    assert not looks_like(text, "de", rather_than="en")


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("en", "fr"), ("en", "es")])
def test_the_warning_is_never_wrong_on_real_text(source: str, target: str) -> None:
    """At most one sentence in 500, in either direction; found are two of five, and files always."""
    folder = Path(__file__).parents[3] / "shared" / "data" / "tatoeba" / f"{source}-{target}"
    if not folder.is_dir():
        pytest.skip("Tatoeba is not on this machine")
    texts = {code: list(TextInput.open(folder / f"valid.{code}.gz")) for code in (source, target)}
    for one, other in ((source, target), (target, source)):
        assert sum(looks_like(line, other, rather_than=one) for line in texts[one]) <= len(texts[one]) / 500
        assert sum(looks_like(line, one, rather_than=other) for line in texts[one]) > 0.39 * len(texts[one])
        assert mostly_looks_like(texts[one][:100], one, rather_than=other)
        assert not mostly_looks_like(texts[one][:100], other, rather_than=one)


# Models


def test_a_misspelled_model(multihead: Run, tmp_path: Path) -> None:
    shutil.copytree(BUNDLED / "en-de", tmp_path / "my-model")
    for wrong, right in (("en_de", "en-de"), ("en-dee", "en-de"), ("my-modle", "my-model")):
        multihead("translate", wrong, "text").refused(1, f"there is no model '{wrong}'; did you mean '{right}'?")
    multihead("info", "zz-xx-yy").refused(1, "hf:owner/name, or a bundled model (en-de, lesson)")
    multihead("translate", "Where is the station?").refused(1, "the model comes first, then the text")
    multihead("translate", "EN-DE", "text").refused(1, "there is no model 'EN-DE'; did you mean 'en-de'?")
    multihead("translate", "owner/name", "text").refused(1, "did you mean 'hf:owner/name', a model of the hub?")


@pytest.mark.parametrize("name", ["de-en", "en-fr"])
def test_another_pair_of_languages_is_no_misspelling(multihead: Run, name: str) -> None:
    ended = multihead("translate", name, "text")
    ended.refused(1, f"there is no model '{name}'", "For other languages or directions, train one")
    assert "did you mean" not in ended.err


def test_a_file_in_place_of_a_model(multihead: Run, tmp_path: Path) -> None:
    shutil.copytree(BUNDLED / "en-de", tmp_path / "my-model")
    write(tmp_path / "notes.txt", ["text"])
    multihead("translate", "my-model/model.safetensors", "text").refused(1, "is a file", "did you mean 'my-model'?")
    multihead("translate", "notes.txt").refused(1, "notes.txt is a file, and a model is a folder")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "the folder is empty"),
        ({"notes.txt": "text"}, "it has no config.json"),
        ({"corpus.json": "{}"}, "multihead train --data it --output MODEL"),
        ({"data/corpus.json": "{}"}, "Continue it with the command that began it"),
        (
            {"config.json": '{"format": 2, "provenance": {}}', "data/corpus.json": "{}"},
            "a training run without a checkpoint",
        ),
        ({"step-5/config.json": "{}"}, "Give one of them, such as it/step-5"),
        ({"model/config.json": "{}"}, "Did you mean it/model?"),
        ({"config.json": "{}", "model.bin": "x"}, "an export to CTranslate2"),
        ({"encoder.onnx": "x"}, "an export to ONNX"),
        ({"config.json": '{"model_type": "marian"}'}, "multihead import it --output MODEL"),
        ({"config.json": '{"model_type": "t5"}'}, "of type t5; only Marian models can be imported"),
    ],
)
@pytest.mark.parametrize("command", ["translate", "info"])
def test_a_folder_that_is_not_a_model(
    multihead: Run, tmp_path: Path, command: str, files: dict[str, str], words: str
) -> None:
    (tmp_path / "it").mkdir()
    for name, content in files.items():
        (tmp_path / "it" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "it" / name).write_text(content, encoding="utf-8")
    multihead(command, "it", *(["text"] if command == "translate" else [])).refused(1, "it is not a model: ", words)


def test_import_says_what_a_folder_is_that_is_no_marian_model(multihead: Run, tmp_path: Path) -> None:
    for name, content in (("export", "{}"), ("other", '{"model_type": "t5"}'), ("unknown", "{}")):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "config.json", [content])
    write(tmp_path / "export" / "model.bin", ["x"])
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("export", "it is an export to CTranslate2"),
        ("other", "it is of type t5"),
        ("unknown", "its config.json has no model_type"),
        ("empty", "the folder is empty"),
        ("nowhere", "there is no folder nowhere"),
        ("en-de", "is already a model of Multihead"),
        ("owner/name", "did you mean 'hf:owner/name'"),
    ):
        multihead("import", name, "--output", "model").refused(1, name, words)
    assert not (tmp_path / "model").exists()


# What a command says


def test_the_command_alone_shows_three_ways_to_begin(multihead: Run) -> None:
    ended = multihead()
    assert ended.status == 0
    assert all(line in ended.out for line in ("\nTranslate\n", "\nTrain your own model\n", "\nLearn how it works\n"))
    assert max(map(len, ended.out.splitlines())) < 80
    shown = [line.partition("#")[0].split() for line in ended.out.splitlines() if line.startswith("  multihead ")]
    assert len(shown) == 6
    assert {words[1] for words in shown} <= COMMANDS.keys()
    for words in shown:
        options = [word for word in words if word.startswith("--")]
        assert all(option in multihead(words[1], "--help").out for option in options)


@pytest.mark.parametrize("group", ["", "bench", "paper"])
def test_a_list_of_commands_describes_each_in_a_whole_sentence(
    multihead: Run, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = multihead(*group.split(), "--help").out
    commands = shown.partition("Commands:")[2].splitlines()[1:]
    assert commands and all(line.endswith(".") and not line.endswith("...") for line in commands)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("multihead tra", ["train", "translate"]),
        ("multihead translate e", ["en-de"]),
        ("multihead train --preset ti", ["tiny"]),
        ("multihead train --set train.warm", ["train.warmup="]),
        ("multihead translate en-de --engine a", ["auto"]),
        ("multihead export en-de --format ma", ["marian"]),
        ("multihead train --task rev", ["reverse"]),
    ],
)
def test_the_shell_completes(typed: str, completed: list[str]) -> None:
    environment = {
        **os.environ,
        "_MULTIHEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    code = "import sys; sys.argv = ['multihead']; from multihead.cli.main import main; main()"
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert shown.stdout.split() == completed


def test_short_options_are_the_long_ones(multihead: Run, tmp_path: Path) -> None:
    write(tmp_path / "in.txt", ["Thank you."])
    assert multihead("translate", "en-de", "-i", "in.txt", "-o", "out.txt", "-q").err == ""
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "Vielen Dank!\n"
    for command in ("train", "prepare", "translate", "export", "bulk", "inspect", "explain"):
        shown = multihead(command, "--help").out
        assert all(re.search(rf"^ +-{name[0]}, --{name}\b", shown, re.MULTILINE) for name in ("output", "quiet"))


def test_help_has_a_short_name(multihead: Run) -> None:
    for command in ([], ["translate"], ["paper"], ["paper", "table1"]):
        assert multihead(*command, "-h").out == multihead(*command, "--help").out != ""


def test_a_text_that_begins_with_a_hyphen(multihead: Run, tmp_path: Path) -> None:
    for command in (("translate", "en-de"), ("inspect", "en-de", "--output", "page.html"), ("explain", "en-de")):
        for text in ("- Thank you.", "-Thank you."):
            multihead(*command, text).refused(2, "No such option: -", "Put a text that begins with - after --")
    assert multihead("translate", "en-de", "--", "- Thank you.").status == 0
    assert "after --" not in multihead("translate", "en-de", "--bean", "3", "text").err
    assert "after --" not in multihead("train", "-x").err


def test_somebody_who_types_learns_how_and_is_answered_at_once() -> None:
    terminal, theirs = os.openpty()
    command = [sys.executable, "-m", "multihead", "translate", "en-de"]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert process.stderr and process.stdout
    try:
        assert process.stderr.readline() == "Type a text and press Enter; Ctrl-D ends.\n"
        os.write(terminal, b"Thank you.\n")
        assert process.stdout.readline() == "Vielen Dank!\n"
        os.write(terminal, b"\x04")
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0
    finally:
        process.kill()
        os.close(terminal)


def test_info_is_a_page_to_read(multihead: Run) -> None:
    """The table of confidences and the settings of variants that a model does not use are in --json."""
    shown = multihead("info", "en-de").out
    assert "confidence calibrated" in shown
    assert "d_model 192, d_ff 768" in shown
    assert not re.search(r"confidence_levels|neural_gpu|image_width|None", shown)
    assert "confidence_levels" in multihead("info", "en-de", "--json").out


def test_quiet_silences_and_verbose_tells_more(multihead: Run, tmp_path: Path) -> None:
    german = ("translate", "en-de", "Wo ist der Bahnhof?")
    assert multihead(*german, "-q").err == ""
    assert "looks like German" in multihead(*german).err
    assert "loaded en-de into " in multihead(*german, "-v").err
    multihead(*german, "-q", "-v").refused(2, "contradict each other")
    multihead("translate", "nowhere", "text", "-q").refused(1, "there is no model")  # an error is always shown
    files = ("--source", write(tmp_path / "a.en", ENGLISH), "--target", write(tmp_path / "a.de", GERMAN))
    assert multihead("prepare", *files, "-o", "one", "-q").err == ""
    detail = multihead("prepare", *files, "-o", "two", "-v").err
    assert "reading and cleaning: 40 pairs, " in detail
    assert "encoding 40 pairs: " in detail


def test_a_long_task_prints_a_line_every_few_seconds() -> None:
    lines: list[str] = []
    with Progress(lines.append, "reading and cleaning", interval=0.01) as progress:
        progress.done = 123_456_789
        while len(lines) < 3:
            time.sleep(0.01)
    assert re.fullmatch(r"reading and cleaning: 123,456,789 pairs, [\d,]+ pairs/s, 0 s", lines[-1])
    assert max(map(len, lines)) <= 80


def test_a_busy_machine_is_reported() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(spin) for _ in range(n_cores())]
    try:
        warning = load.busy_warning()
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert warning and "cores busy" in warning


def test_a_machine_that_has_done_nothing_since_is_not_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"cpu{core} 10 0 10 1000 0 0 0 0 0 0" for core in range(os.cpu_count() or 1)]
    monkeypatch.setattr(load, "_STAT", write(tmp_path / "stat", ["cpu 1 1 1 1 1 1 1 1", *lines]))
    assert load.busy_warning() is None


# Too little time


def test_a_time_in_which_no_model_can_be_trained_is_refused_with_the_minimum(multihead: Run, tmp_path: Path) -> None:
    files = ("--source", write(tmp_path / "a.en", ENGLISH * 3), "--target", write(tmp_path / "a.de", GERMAN * 3))
    run = (*files, "-o", "run", "--preset", "tiny", "--set", "train.warmup=100000", "--set", "train.steps=1000000")
    ended = multihead("train", *run, "--minutes", "0.5")
    ended.refused(2, "--minutes 0.5 is too short for a trained model", "the text stays prepared")
    minimum = re.search(r"Use --minutes (\d+) or more", ended.err)
    assert minimum and int(minimum[1]) > 1
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "data" / "corpus.json").exists()


# Input


def test_a_file_in_place_of_a_text(multihead: Run, tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", ["text"])
    multihead("translate", "en-de", "notes.txt").refused(2, "notes.txt is a file", "--input notes.txt")
    multihead("translate", "en-de", "a text", "--input", "notes.txt").refused(2, "not both")


def test_an_empty_file(multihead: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    ended = multihead("translate", "en-de", "--input", "empty")
    assert (ended.status, ended.out) == (0, "")
    assert "empty is empty: there is nothing to translate" in ended.err
    other = write(tmp_path / "other", GERMAN)
    multihead("train", "--source", "empty", "--target", other, "--output", "run").refused(1, "empty is empty")
    multihead("evaluate", "en-de", "--source", "empty", "--reference", "empty").refused(1, "empty is empty")


def test_files_of_different_length(multihead: Run, tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.en", ENGLISH), write(tmp_path / "a.de", GERMAN[1:])
    words = ("a.en has 40 lines", "a.de has 39", "must be the translation of line n")
    multihead("prepare", "--source", one, "--target", other, "--output", "data").refused(1, *words)
    multihead("evaluate", "en-de", "--source", one, "--reference", other).refused(1, *words)


def test_a_file_that_cannot_be_written_or_read_is_named_with_what_to_do(multihead: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place, words in (("nowhere/out.txt", "check that its folder exists"), ("folder", "give a file")):
        ended = multihead("translate", "en-de", "Thank you.", "-o", place)
        ended.refused(1, f"cannot read or write {place}: ", words)
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 9)
    multihead("translate", "en-de", "-i", "noise").refused(1, "noise is not text", "Give a text file in UTF-8")


def test_a_page_in_a_folder_that_is_missing_is_named_as_the_user_wrote_it(multihead: Run) -> None:
    multihead("explain", "-o", "nowhere/lesson.html").refused(1, "cannot read or write nowhere/lesson.html: ")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--beam four", "Invalid value for '--beam': 'four' must be a whole number"),
        ("--alpha x", "'x' must be a number"),
    ],
)
def test_a_word_in_place_of_a_number(multihead: Run, option: str, words: str) -> None:
    multihead("translate", "en-de", "text", *option.split()).refused(2, words)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_missing_permission_is_named_with_what_to_do(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Root may write anywhere, so the error is raised here."""

    def write_where_one_may_not() -> None:
        raise OSError(number, os.strerror(number), "locked/out.txt")

    with pytest.raises(SystemExit, match="1"):
        run_and_report_errors(write_where_one_may_not)
    message = f"multihead: cannot read or write locked/out.txt: {os.strerror(number)}; change its permissions"
    assert capsys.readouterr().err.startswith(message)


def test_a_length_penalty_that_would_overflow_is_refused(multihead: Run) -> None:
    for alpha in ("inf", "1e300"):
        multihead("translate", "en-de", "text", "--alpha", alpha).refused(2, "must not be larger than 20")


def test_a_file_in_place_of_the_output_folder(multihead: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.en", ENGLISH)
    multihead("train", "-o", "a.en", "-q").refused(1, "a.en", "there is a file in its place")


def test_a_beam_that_would_fill_the_memory_is_refused(multihead: Run) -> None:
    multihead("translate", "en-de", "text", "--beam", "1000000").refused(2, "must not be larger than 1000")


def test_one_file_in_both_places(multihead: Run, tmp_path: Path) -> None:
    one = write(tmp_path / "a.en", ENGLISH)
    multihead("prepare", "--source", one, "--target", one, "--output", "data").refused(2, "given both as the source")
