"""The app's actions, run by keys, buttons and the palette."""
