"""Command line, report, profile, fleet files: what people use around the core, which never imports it."""
