"""Records a running server of a language model: its profiler, its metrics page, its files."""
