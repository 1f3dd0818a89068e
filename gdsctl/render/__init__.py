"""Documents to text: terminal, JSON, YAML. Nothing is judged here."""
