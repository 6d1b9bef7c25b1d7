"""What logs say: fallbacks, compilations, banners, progress."""
