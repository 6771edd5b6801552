"""Write the files of the embedded corpus and print their checksums: python -m tools.embedded_corpus.write [FOLDER]."""

import gzip
import hashlib
import sys
from pathlib import Path

from multihead.data.embedded_corpus import FOLDER, SHA256
from tools.embedded_corpus.grammar import Split, sentence_pairs


def content(split: Split) -> bytes:
    """Return the pairs of a split as lines of English, a tab, and German."""
    return "".join(f"{english}\t{german}\n" for english, german in sentence_pairs(split)).encode()


def write_corpus(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split in SHA256:
        text = content(split)
        with (
            (folder / f"{split}.tsv.gz").open("wb") as file,
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped,  # neither name nor time of the file
        ):
            zipped.write(text)
        print(f'    "{split}": "{hashlib.sha256(text).hexdigest()}",')


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
