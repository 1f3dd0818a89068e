"""The one seam: everything gdsctl knows of a machine comes through a Source, live or replayed."""
