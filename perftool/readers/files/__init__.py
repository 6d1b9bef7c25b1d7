"""Which files there are, how their bytes are read, and which rank each is."""
