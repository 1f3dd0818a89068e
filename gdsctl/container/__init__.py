"""What a container is given, by the file that describes it, and the node as seen from inside that container."""
