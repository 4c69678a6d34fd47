"""`python -m unsay` is `unsay`."""

import sys

from unsay.cli.main import main

sys.exit(main())
