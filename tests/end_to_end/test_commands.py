"""The commands of a model's life, as a user types them."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from multihead.model.weights import load_model, to_arrays, weights_of
from multihead.storage.checkpoints import saved_steps
from multihead.storage.checksums import update_checksum
from multihead.storage.model_folder import Provenance, save_model
from multihead.training.checkpoint import average_checkpoints
from tests.conftest import copy_or_reverse, write_pairs
from tests.fault.test_bad_input import assert_refused

ROOT = Path(__file__).parents[2]


def multihead(*arguments: str | Path, stdin: bytes | None = None, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "multihead", *map(str, arguments)]
    result = subprocess.run(command, input=stdin or b"", capture_output=True, timeout=240, check=False)
    decoded = subprocess.CompletedProcess(command, result.returncode, result.stdout.decode(), result.stderr.decode())
    assert decoded.returncode == status, decoded.stderr
    return decoded


@pytest.fixture(scope="module")
def test_set(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pairs(tmp_path_factory.mktemp("test"), copy_or_reverse(60, seed=11))


# translate


def test_texts_are_translated_from_arguments(trained: Path) -> None:
    assert multihead("translate", trained, "reverse a b c", "copy d e").stdout == "c b a\nd e\n"


def test_a_file_is_translated_line_by_line(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"copy a b\n\nreverse c d\n"))
    multihead("translate", trained, "--input", tmp_path / "in.gz", "--output", tmp_path / "out.gz", "--beam", "1")
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == b"a b\n\nd c\n"


def test_standard_input_keeps_its_line_count(trained: Path) -> None:
    hostile = "copy a b\r\n\n  \ncopy\u2028c d\n\ufeffcopy\u0085e\n</s> <pad>\nnul\0\n".encode() + b"\xff\xfe\nlast"
    result = multihead("translate", trained, "--beam", "1", stdin=hostile)
    assert result.stdout.count("\n") == hostile.count(b"\n") + 1
    assert result.stdout.split("\n")[0] == "a b"


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(trained: Path, tmp_path: Path) -> None:
    """As `head -1` does, while there is more to write than a pipe holds."""
    (tmp_path / "many").write_bytes(b"copy a b\n" * 40_000)
    command = [sys.executable, "-m", "multihead", "translate", trained, "--beam", "1", "--input", tmp_path / "many"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"a b\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_json_has_every_part(trained: Path) -> None:
    line = json.loads(multihead("translate", trained, "--json", "--n-best", "2", "reverse a b").stdout)
    assert {"text", "score", "tokens", "token_scores", "alternatives", "alignment", "warnings"} <= line.keys()
    assert (line["text"], len(line["alternatives"])) == ("b a", 1)


def test_alternatives_follow_after_tabs(trained: Path) -> None:
    assert len(multihead("translate", trained, "--n-best", "3", "copy a b").stdout.split("\t")) == 3


def test_samples_depend_on_the_seed(trained: Path) -> None:
    options = ("translate", trained, "--sample", "--temperature", "3", "copy a b c d e f")
    one, again, other = (multihead(*options, "--seed", seed).stdout for seed in ("1", "1", "2"))
    assert one == again != other


def test_a_sentence_that_was_split_is_named_on_stderr(trained: Path) -> None:
    result = multihead("translate", trained, "copy " + "a b c d e f g h " * 20)
    assert "line 1: split: " in result.stderr


PARAGRAPH = "I have a dog. He is very old."


def test_a_paragraph_is_split_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    assert multihead("translate", "en-de", PARAGRAPH).stdout == "Ich habe einen Hund. Er ist sehr alt.\n"
    (tmp_path / "in").write_text(PARAGRAPH + "\n", encoding="utf-8")
    options = ("translate", "en-de", "--input", tmp_path / "in", "-o", tmp_path / "out", "--json")
    pieces = []
    for option in ("--split", "--no-split"):
        multihead(*options, option)
        pieces.append(json.loads((tmp_path / "out").read_text(encoding="utf-8")))
    assert pieces[0]["text"] == "Ich habe einen Hund. Er ist sehr alt."
    assert pieces[0]["score"] != pieces[1]["score"]


def test_the_exact_search_is_torch_without_shortlist_and_guard(trained: Path) -> None:
    """The guard would complain about a number that is lost."""
    line = ("translate", trained, "--json", "copy a 1234")
    exact, guarded = (json.loads(multihead(*line, *more).stdout) for more in (["--exact"], ["--engine", "torch"]))
    assert not any(warning.startswith("number") for warning in exact["warnings"])
    unguarded = json.loads(multihead(*line, "--no-guard").stdout)
    assert unguarded["warnings"] == exact["warnings"]
    assert ("1234" in guarded["text"]) or guarded["warnings"]


def test_the_stored_length_penalty_is_used_unless_another_is_given(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "model", ignore=shutil.ignore_patterns("checkpoints", "data", "ctranslate2"))
    path = tmp_path / "model" / "config.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**stored, "search": {"alpha": 3.0, "split": True}}), encoding="utf-8")
    update_checksum(tmp_path / "model", "config.json")
    line = ("translate", tmp_path / "model", "--json", "copy a b c")
    default, given, papers = (
        json.loads(multihead(*line, *more).stdout)["score"] for more in ([], ["--alpha", "3"], ["--alpha", "0.6"])
    )
    assert default == given != papers


def test_models_can_vote(trained: Path) -> None:
    assert multihead("translate", trained, "--ensemble", trained, "copy a b").stdout == "a b\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["translate", "nowhere", "text"], 1, "there is no model 'nowhere'"),
        (["translate", "MODEL", "--beam", "0", "text"], 2, "beam=0"),
        (["translate", "MODEL", "--n-best", "9", "text"], 2, "beam"),
        (["translate", "MODEL", "--engine", "warp", "text"], 2, "no engine 'warp'"),
        (["translate", "MODEL", "--exact", "--engine", "ctranslate2", "text"], 2, "--exact searches with torch"),
        (["translate", "MODEL", "--input", "nowhere.txt"], 1, "there is no file"),
        (["evaluate", "MODEL", "--source", "nowhere", "--reference", "nowhere"], 1, "there is no file"),
        (["inspect", "MODEL", "text", "--output", "page.pdf"], 2, ".html or .png"),
        (["inspect", "MODEL", " ", "--output", "page.html"], 2, "the text to inspect is empty"),
        (["inspect", "MODEL", "--output", "page.html"], 2, "give a sentence and a file"),
        (["inspect", "MODEL", "text", "--output", "page.html", "--json"], 2, "need --heads, --prune or --examples"),
        (["inspect", "MODEL", "text", "--heads"], 2, "read a test set with --source, not a sentence"),
        (["inspect", "MODEL", "--heads"], 2, "give the test set with --source"),
        (["inspect", "MODEL", "--heads", "--source", "nowhere"], 2, "give them with --reference"),
        (["inspect", "MODEL", "--examples", "--source", "nowhere"], 1, "there is no file"),
        (["inspect", "MODEL", "--examples", "--heads", "--source", "nowhere"], 2, "apart from it"),
        (["inspect", "MODEL", "--prune", "3", "--source", "a", "--reference", "b"], 2, "its folder with --output"),
        (["inspect", "MODEL", "--heads", "--source", "a", "--reference", "b", "-o", "x.pdf"], 2, "must end in .png"),
        (["info", "nowhere"], 1, "there is no model"),
        (["average", "nowhere", "--output", "out"], 1, "no checkpoints"),
    ],
)
def test_misuse_is_said_in_words(trained: Path, arguments: list[str], status: int, words: str) -> None:
    named = [str(trained) if argument == "MODEL" else argument for argument in arguments]
    assert_refused(multihead(*named, status=status), status, words)


def test_a_reader_that_has_seen_enough_is_no_error(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("copy a b\n" * 5000, encoding="utf-8")
    command = f"{sys.executable} -m multihead translate {trained} --beam 1 --input {tmp_path / 'in'} | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=240, check=True)
    assert (result.stdout, result.stderr) == ("a b\n", "")


# evaluate


def test_scores_come_with_their_signatures(trained: Path, test_set: tuple[Path, Path]) -> None:
    source, reference = test_set
    shown = multihead("evaluate", trained, "--source", source, "--reference", reference).stdout
    assert re.search(r"^BLEU  100\.00  nrefs:1\|case:mixed", shown, re.MULTILINE)
    assert "as in the paper" in shown
    assert "60 sentences, " in shown


def test_scores_by_length_are_listed_and_drawn(trained: Path, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    source, reference = test_set
    options = ("evaluate", trained, "--source", source, "--reference", reference, "--by-length")
    shown = multihead(*options, "--picture", tmp_path / "lengths.png").stdout
    groups = re.findall(r"^[\d-]+ source words, (\d+) sentences: BLEU ", shown, re.MULTILINE)
    assert sum(map(int, groups)) == 60
    assert (tmp_path / "lengths.png").stat().st_size > 1000


def test_two_models_are_compared(trained: Path, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    """A model whose embeddings were spoilt is worse, and the bootstrap says so; a model is no better than itself."""
    source, reference = test_set
    model, tokenizer, config = load_model(trained)
    spoilt = weights_of(model)
    spoilt["source_embedding.weight"].mul_(0.5)
    save_model(tmp_path / "spoilt", to_arrays(spoilt), config, tokenizer.files(), Provenance())
    options = ("evaluate", trained, "--source", source, "--reference", reference, "--beam", "1", "--json")
    reports = [json.loads(multihead(*options, "--compare", other).stdout) for other in (trained, tmp_path / "spoilt")]
    itself, worse = (report["comparison"][0] for report in reports)
    assert itself["p_value"] > 0.05
    assert worse["value"] > worse["other_value"]
    assert worse["p_value"] < 0.05
    assert reports[0]["sentences_per_second"] > 0


# average, info, inspect


def test_checkpoints_are_averaged_into_a_model(trained: Path, tmp_path: Path) -> None:
    multihead("average", trained, "--last", "3", "--output", tmp_path / "averaged")
    newest = saved_steps(trained / "checkpoints")[-3:]
    expected = average_checkpoints([trained / "checkpoints" / f"step-{step}" for step in newest])
    model, _, _ = load_model(tmp_path / "averaged")
    assert all((tensor == expected[name]).all() for name, tensor in weights_of(model).items())
    assert multihead("translate", tmp_path / "averaged", "copy a b").stdout == "a b\n"


def test_info_says_what_a_model_is(trained: Path) -> None:
    shown = multihead("info", trained).stdout
    for words in ("parameters", "d_model 64", "BLEU", "flops_by_time", "seconds"):
        assert words in shown
    facts = json.loads(multihead("info", trained, "--json").stdout)
    assert facts["steps"] == 1200
    assert facts["shape"]["d_model"] == 64


def test_the_card_says_where_the_model_comes_from(trained: Path) -> None:
    card = (trained / "README.md").read_text(encoding="utf-8")
    for words in ("## Data", "training pairs", "cleaning kept", "1,200 steps", "FLOPs", "nrefs:1\\|"):
        assert words in card


@pytest.mark.parametrize(("name", "start"), [("page.html", b"<!"), ("picture.png", b"\x89PNG")])
def test_attention_is_shown_as_page_and_picture(trained: Path, tmp_path: Path, name: str, start: bytes) -> None:
    result = multihead("inspect", trained, "reverse a b c", "--output", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert "c b a" in result.stderr


def test_heads_are_measured_and_pruned(trained: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, copy_or_reverse(12, seed=6))
    options = ("--source", source, "--reference", target, "--beam", "1")
    picture = multihead("inspect", trained, "--heads", *options, "--no-bleu", "--output", tmp_path / "heads.png")
    assert "24 heads on 12 sentences" in picture.stdout
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    small = tmp_path / "small"
    shown = multihead("inspect", trained, "--prune", "2", *options, "--output", small, "--json")
    report = json.loads(shown.stdout)
    assert len(report["heads"]) == 24
    assert len(report["pruned"]["removed"]) == 2
    assert "without 2 of its 24 heads" in shown.stderr
    assert multihead("translate", small, "copy a b").stdout == "a b\n"
    assert "without 2 of its 24 heads" in multihead("info", small).stdout
    assert_refused(multihead("inspect", trained, "--prune", "2", *options, "--output", small, status=1), 1, "already")


def test_examples_of_heads_are_printed(trained: Path, tmp_path: Path) -> None:
    source, _ = write_pairs(tmp_path, copy_or_reverse(40, seed=6))
    shown = multihead("inspect", trained, "--examples", "--source", source, "--most", "1")
    assert "encoder" in shown.stdout and "→" in shown.stdout
    found = json.loads(multihead("inspect", trained, "--examples", "--source", source, "--json").stdout)
    assert {one["kind"] for one in found} <= {"distance", "anaphora", "structure"}


# README


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    """Every `multihead` line of the README, on a small corpus of its own and for a few steps."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(multihead .*)$", "\n".join(re.findall(r"```\n(.*?)```", readme, re.DOTALL)), re.MULTILINE)
    source, target = write_pairs(tmp_path, copy_or_reverse(80, seed=4))
    for name, path in (("corpus.en", source), ("corpus.de", target), ("test.en", source), ("test.de", target)):
        (tmp_path / name).write_bytes(path.read_bytes())
    assert len(lines) >= 7
    for line in lines:
        if " serve " in line or "paper parsing" in line:
            continue  # does not end, or takes minutes; both have tests of their own
        command = line.replace("multihead", f"{sys.executable} -m multihead", 1)
        if " train " in command:
            command += " --steps 2"
        result = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
        )
        assert result.returncode == 0, f"{line}\n{result.stderr}"


# engines, export, bench


def test_every_engine_translates(trained: Path) -> None:
    for engine in ("auto", "torch", "ctranslate2", "ctranslate2:float32"):
        assert multihead("translate", trained, "--engine", engine, "reverse a b c").stdout == "c b a\n"
    assert multihead("translate", trained, "--exact", "reverse a b c").stdout == "c b a\n"


def test_an_unknown_engine_is_refused(trained: Path) -> None:
    result = multihead("translate", trained, "--engine", "warp", "copy a", status=2)
    assert "there is no engine 'warp'; choose one of auto, torch, ctranslate2" in result.stderr


def test_a_model_is_exported_for_ctranslate2(trained: Path, tmp_path: Path) -> None:
    multihead("export", trained, "--format", "ctranslate2", "--quantization", "int8", "--output", tmp_path / "out")
    assert (tmp_path / "out" / "model.bin").exists()
    assert "unknown format 'tape'" in multihead("export", trained, "--format", "tape", "--output", "x", status=2).stderr


def test_what_a_format_cannot_express_is_refused_in_words(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    result = multihead("export", trained, "--format", "marian", "--output", output, status=1)
    assert "cannot be exported to marian: requires model.norm=post" in result.stderr
    result = multihead("export", trained, "--format", "onnx", "--quantization", "int8", "--output", output, status=2)
    assert "--quantization int8 requires ctranslate2" in result.stderr
    assert not output.exists()


def test_what_cannot_be_imported_is_refused_in_words(trained: Path, tmp_path: Path) -> None:
    assert "there is no folder nothing" in multihead("import", "nothing", "--output", tmp_path / "x", status=1).stderr
    result = multihead("import", trained, "--output", tmp_path / "x", status=1)
    assert "is already a model of Multihead" in result.stderr


def test_training_speed_is_measured_beside_the_plain_loop() -> None:
    result = multihead("bench", "train", "--preset", "tiny", "--steps", "1", "--batch-tokens", "300", "--json")
    figures = json.loads(result.stdout)
    promised = {"tokens_per_second", "plain_torch_tokens_per_second", "ratio"}
    assert promised | {"matmul_gflops", "share_of_peak", "peak_memory_mb"} <= figures.keys()
    ratio = figures["tokens_per_second"] / figures["plain_torch_tokens_per_second"]
    assert figures["ratio"] == pytest.approx(ratio, rel=0.01)


def test_translation_speed_is_measured_beside_ctranslate2(trained: Path, test_set: tuple[Path, Path]) -> None:
    source, reference = test_set
    options = ("--source", source, "--reference", reference, "--sentences", "20", "--json")
    figures = json.loads(multihead("bench", "translate", trained, *options).stdout)
    promised = {"sentences_per_second", "ctranslate2_sentences_per_second", "ratio", "bleu", "ctranslate2_bleu"}
    assert promised <= figures.keys()
    assert figures["bleu"] == pytest.approx(figures["ctranslate2_bleu"], abs=5)
