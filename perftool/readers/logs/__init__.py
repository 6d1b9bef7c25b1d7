"""Readers of logs: fallbacks, compilations, banners, progress, servers, environments."""
