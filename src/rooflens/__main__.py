"""``python -m rooflens`` is the ``rooflens`` command."""

import sys

from rooflens.cli import main

sys.exit(main())
