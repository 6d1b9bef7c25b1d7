"""Rules: loaded from packs, selected and run; their findings ranked."""
