"""`python -m fumehood`."""

from fumehood.cli import main

main()
