"""`python -m fastweights` is the command line."""

from fastweights.cli import main

raise SystemExit(main())
