"""Times of the lesson in Chromium beside their budgets: text, model, translation, station, what-if, and its sizes.

python -m benchmarks.lesson_page [MODEL]            # about half a minute; the machine has to be idle
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from multihead.console import make_table
from multihead.interop.hub import find_model
from multihead.lesson import page as lesson_page
from multihead.lesson.explain import write_lesson
from multihead.storage.model_folder import ModelFolder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROUNDS = 5
BUDGETS = {  # seconds
    "open: text visible": 0.3,
    "open: model ready": 1.0,
    "first greedy translation": 0.25,
    "first translation, beam 4": 0.8,
    "greedy": 0.25,
    "beam 4": 0.8,
    "station change, slowest": 0.05,
    "what if, slowest": 0.4,
}
# The page notes when its text is first there, and when a model is.
WATCH = """
window.times = {};
const watch = () => {
  if (!times.text && document.querySelector("#step h1, .sentence")) times.text = performance.now();
  if (!times.model && window.lesson?.app.model) times.model = performance.now();
  if (!times.model) setTimeout(watch, 1);
};
watch();
"""
FIRST = """async ([text, beam]) => {
  const begin = performance.now();
  await lesson.app.runner.run("translate", {text, options: {beam, alpha: 0.6}});
  return performance.now() - begin;
}"""
STATIONS = """async () => {
  const times = [];
  for (let s = 0; s < lesson.app.stations.length; s++) {
    const begin = performance.now();
    await lesson.app.go(s);
    document.body.offsetHeight; // the layout is part of it
    times.push(performance.now() - begin);
  }
  return times;
}"""
KNOBS = """async () => {
  await lesson.app.go(20);
  const times = {};
  for (const button of document.querySelectorAll("[data-focus^=knob]")) {
    const begin = performance.now();
    document.querySelector(".outcome").replaceChildren();
    button.click();
    while (!document.querySelector(".outcome dd")) await new Promise((wake) => setTimeout(wake, 1));
    times[button.textContent] = performance.now() - begin;
  }
  return times;
}"""


def measure(browser: "Browser", path: Path) -> dict[str, float]:
    """Return the times of one visit in a new context, in seconds."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    tab = context.new_page()
    tab.add_init_script(WATCH)
    tab.goto(path.as_uri() + "#beam=1")
    tab.evaluate("window.lessonReady.then(() => true)")
    times: dict[str, Any] = tab.evaluate("times")
    found = {"open: text visible": times["text"], "open: model ready": times["model"]}
    found["first greedy translation"] = _first(tab, "I have never been to Berlin.", 1)
    found["greedy"] = _first(tab, "The children are playing in the garden.", 1)
    found["beam 4"] = _first(tab, "The children are playing in the garden.", 4)
    found["station change, slowest"] = max(tab.evaluate(STATIONS))
    tab.evaluate("lesson.app.update({beam: 4})")
    knobs: dict[str, float] = tab.evaluate(KNOBS)
    found["what if, median"] = statistics.median(knobs.values())
    slowest = max(knobs, key=lambda name: knobs[name])
    found["what if, slowest"] = knobs[slowest]
    context.close()
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(path.as_uri() + "#beam=1")
    tab.evaluate("window.lessonReady.then(() => true)")
    found["first translation, beam 4"] = _first(tab, "I have never been to Berlin.", 4)
    context.close()
    return {name: milliseconds / 1000 for name, milliseconds in found.items()}


def _first(tab: "Page", text: str, beam: int) -> float:
    milliseconds: float = tab.evaluate(FIRST, [text, beam])
    return milliseconds


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "lesson"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "lesson.html"
        began = time.perf_counter()
        write_lesson(ModelFolder.open(find_model(model)), None, path)
        written = time.perf_counter() - began
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        visits = [measure(browser, path) for _ in range(ROUNDS)]
        browser.close()
        size = path.stat().st_size
    medians = {name: statistics.median(visit[name] for visit in visits) for name in visits[0]}
    rows: list[dict[str, object]] = [
        {"what": name, "seconds": f"{median:.3f}", "budget": BUDGETS.get(name, "")} for name, median in medians.items()
    ]
    print(make_table(rows).as_text())
    code = len(lesson_page.join_modules(lesson_page.MODULES).encode())
    print(f"\n{model}: page {size / 1e6:.2f} MB, code {code / 1e3:.0f} kB, written in {written:.1f} s (no head roles)")


if __name__ == "__main__":
    main()
