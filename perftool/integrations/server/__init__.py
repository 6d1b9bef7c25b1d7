"""Records a running language-model server: starts its profiler, reads its metrics page, and collects its traces."""
