# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`python -m transformers_elmo.command`, for torchrun."""

import sys

from . import main

sys.exit(main())
