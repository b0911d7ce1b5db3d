"""The main screen, and the dialogs that ask one thing each."""
