"""`python -m transformers_elmo.command`, for torchrun."""

import sys

from . import main

sys.exit(main())
