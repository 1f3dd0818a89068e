"""Direct-I/O transfers: figures that can be published, and proof of the path the bytes took."""
