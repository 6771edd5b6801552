"""Turn a trained run into a bundled model: float16 weights, scores on the test set, a model card with limits.

python -m benchmarks.recipes.bundle RUN multihead/bundled/en-de --source test.en.gz --reference test.de.gz
python -m benchmarks.recipes.bundle RUN multihead/bundled/lesson --source test.en.gz --reference test.de.gz

The name of the output folder decides what its card says of attribution and limits. `lesson` gets no shortlist.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from multihead.config.schema import SearchConfig
from multihead.data.shards import read_summary
from multihead.evaluation.evaluate import TestSet, evaluate
from multihead.model.weights import load_model, to_arrays, weights_of
from multihead.runs.model_card import write_card
from multihead.storage.model_folder import PublishedScore, read_provenance, read_search, save_model
from multihead.storage.shortlist import load_shortlist

ATTRIBUTION = """
## Attribution

Trained on sentence pairs of [Tatoeba](https://tatoeba.org), as collected by
[manythings.org/anki](https://www.manythings.org/anki), Creative Commons Attribution 2.0 (CC BY 2.0 FR).{changes}
Validation and test sentences, and whatever shares a side with them, were left out.

## Limits

{limits}
"""
NOTES = {
    "en-de": ATTRIBUTION.format(
        changes=" Changes: in\nhalf of the pairs names and numbers that both sides share were replaced by others.",
        limits="""\
- Everyday sentences of about 3 to 15 words. Longer ones, news, law, medicine and technical text are beyond it.
- English has one *you* and German three: it says *du* more often than *Sie* or *ihr*, and cannot be told which one.
- Of numbers with four digits every fifth comes out wrong, of shorter ones every fifteenth; a warning says so. Times of
  day also do, without one.
- Words that 160,000 short sentences do not hold are guessed from their pieces, or copied.
- Each sentence is translated separately: *it* and *she* do not know the sentence before.
- The text was written by volunteers; its names (Tom, Mary) may turn up where none was said.""",
    ),
    "lesson": """
This is the paper's Transformer, scaled down and otherwise unchanged: the model of `multihead explain`. It is made for
looking inside. To translate, use `en-de`, which is larger and better.
"""
    + ATTRIBUTION.format(
        changes="",
        limits="""\
- Everyday sentences of about 3 to 12 words. It is a model to look at, not one to rely on.
- With 3,000 pieces many words are spelled from several; rare words and names often come out wrong.
- English has one *you* and German three: it cannot be told which one to use.
- Each sentence is translated separately: *it* and *she* do not know the sentence before.""",
    ),
}


def main(
    run: Path,
    output: Path,
    source: Annotated[Path, typer.Option()],
    reference: Annotated[Path, typer.Option()],
) -> None:
    """Write the model folder OUTPUT."""
    if output.name not in NOTES:
        raise typer.BadParameter(f"{output}: the folder of a bundled model is called {' or '.join(NOTES)}")
    model, tokenizer, config = load_model(run)
    provenance = read_provenance(run)
    weights = to_arrays({name: tensor.half() for name, tensor in weights_of(model).items()})
    search = read_search(run)
    output.mkdir(parents=True, exist_ok=True)
    if output.name != "lesson" and (words := load_shortlist(run)):
        words.save(output)
    save_model(output, weights, config, tokenizer.files(), provenance, search)
    # The scores are those of the rounded weights.
    report = evaluate(str(output), TestSet(source=source, reference=reference), SearchConfig(), engine="torch")
    name = f"test, {report.sentences} sentences"
    bleu_and_chrf = tuple(PublishedScore(set=name, **asdict(score)) for score in report.scores[:2])
    provenance = replace(provenance, scores=provenance.scores + bleu_and_chrf)
    save_model(output, weights, config, tokenizer.files(), provenance, search)
    card = write_card(output.name, config, read_summary(run / "data"), provenance)
    (output / "README.md").write_text(card + NOTES[output.name], encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
