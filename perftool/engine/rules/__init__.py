"""Rules: read from packs, selected, asked, ranked."""
