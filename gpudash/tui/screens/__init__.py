"""The screens: main screen, replay, timeline and dialogs."""
