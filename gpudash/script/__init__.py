"""The part of gpudash inside a user's script: it finds steps, times them and moves levers."""
