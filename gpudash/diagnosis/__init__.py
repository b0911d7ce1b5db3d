"""What limits a training, and what each lever would bring: pure functions and folds."""
