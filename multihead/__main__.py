"""`python -m multihead` is the command `multihead`."""

from multihead.cli.main import main

main()
