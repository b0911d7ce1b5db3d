"""What keys, buttons and the palette do: parts of the app, by what they are about."""
