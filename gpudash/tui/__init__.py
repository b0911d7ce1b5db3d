"""The dashboard: the only place that imports Textual and plotext."""

from gpudash.tui.light_imports import import_without

import_without({"ssl": None}, "asyncio")  # OpenSSL takes 4 MB, and the dashboard needs no TLS
