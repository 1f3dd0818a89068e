"""The node as immutable records. No I/O here; collectors fill these types, rules read them."""
