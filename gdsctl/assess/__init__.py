"""Node to verdicts: pairs, findings, routes. Rules are the only place where a condition is judged."""
