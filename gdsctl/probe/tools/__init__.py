"""Other people's programs, run on a file of our own, and what they tell brought into the same figures."""
