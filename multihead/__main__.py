"""`python -m multihead` is the command `multihead`."""

from multihead.cli import main

main()
