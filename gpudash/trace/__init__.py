"""What a trace of some training steps tells, read without torch."""
