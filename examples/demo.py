"""`make demo`: translate with the bundled model, then train a model, score it and look inside."""

from pathlib import Path

import multihead
from multihead.data.embedded_corpus import embedded_pairs
from multihead.evaluation.metrics import scores
from multihead.inspection.page import write_page

MODEL = Path("demo")
EVERYDAY = ["Where is the station?", "i forgot my umbrella", "How much is this book?", "See you on Monday, Anna!"]
SENTENCE = "The young doctor gave the old woman a beautiful ring yesterday."
STEPS = 2000  # a fixed number, so that the result does not depend on the speed of the machine
MINUTES = 30  # a limit for very slow machines; two idle cores need five


def main(steps: int = STEPS, minutes: float = MINUTES) -> None:
    print("The bundled model (multihead translate en-de ...):\n")
    for source, translation in zip(EVERYDAY, multihead.load("en-de").translate(EVERYDAY), strict=True):
        print(f"    {source:<32}{translation.text}")
    print(f"\nTraining a model from scratch: {steps:,} steps, at most {minutes:g} minutes.\n", flush=True)

    multihead.train(output=MODEL, preset="tiny", settings={"train.steps": steps, "train.minutes": minutes})
    model = multihead.load(MODEL)

    pairs = embedded_pairs("test")
    translations = model.translate([source for source, _ in pairs])
    print("\nHeld-out sentences (source, translation, reference):\n")
    for (source, reference), translation in list(zip(pairs, translations, strict=True))[:8]:
        mark = "=" if translation.text == reference else "≠"
        print(f"    {source}\n  {mark} {translation.text}\n    {reference}\n")
    exact = sum(translation.text == reference for (_, reference), translation in zip(pairs, translations, strict=True))
    print(f"{exact} of {len(pairs)} translations equal the reference.")
    for score in scores(
        [translation.text for translation in translations], [reference for _, reference in pairs], "de"
    ):
        print(f"{score.name} {score.value:.1f}  ({score.signature})")

    output = model.translate(SENTENCE).text
    page = MODEL / "attention.html"
    write_page(model.attention(SENTENCE, output), page, source=SENTENCE, translation=output, model_name="demo")
    print(f"""
Look at
  {page}            the attention of every head, in your browser
  {MODEL / "training.png"}              the curves of the run
  {MODEL / "README.md"}                 the model's card
Try next
  .venv/bin/multihead translate demo "My sister is buying twenty-one apples."
  .venv/bin/multihead inspect demo "The teacher will read this book tomorrow." --output page.html
  .venv/bin/multihead train --source your.en --target your.de --output my-model""")


if __name__ == "__main__":
    main()
