"""Write and read the files of a recording: CSV, log and provenance."""
