"""Times of the lesson in Chromium beside their budgets: text, model, translation, station, what-if, and its sizes.

python -m benchmarks.lesson_page [MODEL]            # about half a minute; the machine has to be idle

On a busy machine look at the processor time instead: about what an idle machine would need. Until the model is ready it
includes the first translation.
"""

import math
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
    from playwright.sync_api import Browser

ROUNDS = 5
BUDGETS = {  # seconds
    "open: text visible": 0.3,
    "open: model ready": 1.0,
    "first greedy translation": 0.25,
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
STATION = """async (s) => {
  const begin = performance.now();
  await lesson.app.go(s);
  document.body.offsetHeight; // the layout is part of it
  return performance.now() - begin;
}"""
KNOB = """async (name) => {
  const begin = performance.now();
  document.querySelector(".outcome").replaceChildren();
  document.querySelector(`[data-focus="${name}"]`).click();
  while (!document.querySelector(".outcome dd")) await new Promise((wake) => setTimeout(wake, 1));
  return performance.now() - begin;
}"""
KNOBS = "[...document.querySelectorAll('[data-focus^=knob]')].map((button) => button.dataset.focus)"

Times = dict[str, tuple[float, float]]  # seconds, and seconds of processor time of the page


def measure(browser: "Browser", path: Path) -> Times:
    """Return the times of one visit in a new context."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    tab = context.new_page()
    tab.add_init_script(WATCH)
    before = processor_time(browser)
    tab.goto(path.as_uri() + "#beam=1")
    tab.evaluate("window.lessonReady.then(() => true)")
    ready = processor_time(browser) - before
    times: dict[str, Any] = tab.evaluate("times")
    found = {
        "open: text visible": (times["text"] / 1000, math.nan),
        "open: model ready": (times["model"] / 1000, ready),
    }

    def timed(script: str, argument: object) -> tuple[float, float]:
        before = processor_time(browser)
        milliseconds: float = tab.evaluate(script, argument)
        return milliseconds / 1000, processor_time(browser) - before

    found["first greedy translation"] = timed(FIRST, ["I have never been to Berlin.", 1])
    found["greedy"] = timed(FIRST, ["The children are playing in the garden.", 1])
    found["beam 4"] = timed(FIRST, ["The children are playing in the garden.", 4])
    found["station change, slowest"] = max(timed(STATION, s) for s in range(tab.evaluate("lesson.app.stations.length")))
    tab.evaluate("lesson.app.update({beam: 4, s: 20})")
    knobs = sorted(timed(KNOB, name) for name in tab.evaluate(KNOBS))
    found["what if, median"], found["what if, slowest"] = knobs[len(knobs) // 2], knobs[-1]
    context.close()
    return found


def processor_time(browser: "Browser") -> float:
    """Return the seconds that all pages and their workers have computed: on a busy machine, what they needed."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return sum(float(process["cpuTime"]) for process in processes if process["type"] == "renderer")


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
    rows: list[dict[str, object]] = []
    for name in visits[0]:
        seconds, processor = (statistics.median(visit[name][i] for visit in visits) for i in range(2))
        cpu = "" if math.isnan(processor) else f"{processor:.2f}"
        rows.append({"what": name, "seconds": f"{seconds:.3f}", "CPU": cpu, "budget": BUDGETS.get(name, "")})
    print(make_table(rows).as_text())
    code = len(lesson_page.join_modules(lesson_page.MODULES).encode())
    print(f"\n{model}: page {size / 1e6:.2f} MB, code {code / 1e3:.0f} kB, written in {written:.1f} s (no head roles)")


if __name__ == "__main__":
    main()
