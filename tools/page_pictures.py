"""Take the pictures of both pages, docs/attention.png, docs/serving.png and its top, docs/translate.png.

`python -m tools.page_pictures docs` needs Chromium and the extra `dev`. Both pages show the bundled model `en-de`.
"""

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from playwright.sync_api import sync_playwright

import multihead
from multihead.inspection.page import write_page
from multihead.serve.app import AppState, make_app
from multihead.serve.service import Service
from multihead.translation.translator import Translator

SENTENCE = "My sister bought a red bicycle yesterday."


def main(folder: Path) -> None:
    translator = multihead.load("en-de", engine="torch")
    chromium = shutil.which("chromium")
    assert chromium, "Chromium is not installed"
    with tempfile.TemporaryDirectory() as temporary, _serving(translator) as address, sync_playwright() as playwright:
        page_file = Path(temporary) / "attention.html"
        translation = translator.translate(SENTENCE).text
        maps = translator.attention(SENTENCE, translation)
        write_page(maps, page_file, source=SENTENCE, translation=translation, model_name=translator.name)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1320, "height": 900}, color_scheme="light", reduced_motion="reduce")
        page.goto(page_file.as_uri())
        page.screenshot(path=folder / "attention.png", full_page=True)
        page.goto(f"{address}/#{urlencode({'from': 'en', 'to': 'de', 'q': SENTENCE})}")
        page.wait_for_selector("#viewer:not([hidden])")
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=folder / "serving.png", full_page=True)
        # Down to the other translations.
        page.screenshot(path=folder / "translate.png", clip={"x": 0, "y": 0, "width": 1320, "height": 605})
        browser.close()


@contextmanager
def _serving(translator: Translator) -> Iterator[str]:
    """Serve the model in a thread, and give the address."""
    state = AppState()
    state.service = Service([translator], state.limits)
    server = uvicorn.Server(uvicorn.Config(make_app(state), port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
