"""``python -m pdspan``, which is how ``pdspan up`` starts its nodes."""

import sys

from pdspan.main import main

sys.exit(main())
