"""What is shown, without Textual: for the screen, a page, the terminal and a verdict's card."""
