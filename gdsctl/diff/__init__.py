"""Many judged nodes compared: what changes a path, and what only looks different."""
