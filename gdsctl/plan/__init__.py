"""What should be: an operator's intent and a judged node to settings, steps and requirements. No I/O, no output."""
