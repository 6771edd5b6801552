"""Time and memory from a cold start, beside a ten-line script on CTranslate2 and tokenizers with the same model.

python -m benchmarks.cold_start            # about a minute; the machine has to be idle
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from multihead.console import make_table

MODEL = "en-de"
SENTENCE = "Where is the station?"
ROUNDS = 9

BARE = """
import sys
import ctranslate2, tokenizers
translator = ctranslate2.Translator(sys.argv[1], device="cpu", inter_threads=1, intra_threads=1)
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
tokens = [*tokenizer.encode(sys.argv[2]).tokens]
if tokens[-1] != "</s>":
    tokens.append("</s>")
best = translator.translate_batch([tokens], beam_size=4)[0].hypotheses[0]
print(tokenizer.decode([tokenizer.token_to_id(token) for token in best]))
"""


def seconds(command: list[str]) -> float:
    """Return the wall time of a command that must succeed."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def resident_mb(process: int) -> float:
    """Return the resident memory of a process and of its children."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return own / 1024 + sum(resident_mb(int(child)) for child in children)


def server_memory(model: str) -> float:
    """Return the resident memory of `multihead serve` after its first translation."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "multihead", "serve", model, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/ready")
        body = json.dumps({"q": SENTENCE, "source": "en", "target": "de"}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/translate", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request).read()
        time.sleep(2)
        return resident_mb(server.pid)
    finally:
        server.terminate()
        server.wait()


def _wait_until_ready(address: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(address).read()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{address} did not answer within 30 seconds")


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else MODEL
    multihead = [sys.executable, "-m", "multihead"]
    with tempfile.TemporaryDirectory() as folder:
        export = os.path.join(folder, "export")
        options = ["--format", "ctranslate2", "--quantization", "int8", "--output", export]
        subprocess.run([*multihead, "export", model, *options], check=True, stderr=subprocess.DEVNULL)
        commands = {
            "ctranslate2 + tokenizers, ten lines": [sys.executable, "-c", BARE, export, SENTENCE],
            "multihead translate": [*multihead, "translate", model, SENTENCE],
            "multihead --help": [*multihead, "--help"],
        }
        for command in commands.values():
            seconds(command)  # fills the page cache, and writes the export that `translate` keeps
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(seconds(command))
    medians = {name: statistics.median(measured) for name, measured in times.items()}
    bare = next(iter(medians.values()))
    rows: list[dict[str, object]] = [
        {"command": name, "seconds": f"{median:.3f}", "ratio": f"{median / bare:.1f}"}
        for name, median in medians.items()
    ]
    print(make_table(rows).as_text())
    print(f"\nmultihead serve {model}: {server_memory(model):.0f} MB resident after its first translation")


if __name__ == "__main__":
    main()
