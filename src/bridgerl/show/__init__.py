"""A trained policy to look at: video, filmstrip and window, its return distribution beside it."""
