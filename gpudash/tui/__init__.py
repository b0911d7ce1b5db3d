"""The dashboard: the only place that imports Textual and plotext."""
