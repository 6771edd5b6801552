"""Take docs/lesson.png: `python -m tools.lesson_picture docs/lesson.png` (needs Chromium and the extra `dev`)."""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from multihead.interop.hub import find_model
from multihead.lesson.explain import write_lesson
from multihead.storage.model_folder import ModelFolder

VIEW = "s=5&side=cross&layer=1&head=0&row=5&cell=decoder.1.cross.products|0|5|4"


def main(picture: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "Chromium is not installed"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "lesson.html"
        write_lesson(ModelFolder.open(find_model("lesson")), None, page_file)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 1280}, color_scheme="light")
        page.goto(f"{page_file.as_uri()}#{VIEW}")
        page.evaluate("window.lessonReady.then(() => true)")
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
