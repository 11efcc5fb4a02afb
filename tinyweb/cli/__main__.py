"""`python -m tinyweb.cli`."""

from tinyweb.cli import main

main()
