"""KV-cache offload: how large the cache is, and whether a configuration moves its bytes between GPU and storage."""
