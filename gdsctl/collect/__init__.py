"""Source and parsers to a Node. The only stage that knows which fact lies in which file."""
