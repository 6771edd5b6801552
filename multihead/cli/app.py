"""TODO."""

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help answers in half the time, and shows [train] as it is
    help='The Transformer of "Attention Is All You Need": raw parallel text in, a translation model out.',
)
