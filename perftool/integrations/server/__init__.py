"""Records a running language-model server: its profiler, its metrics page, its files."""
