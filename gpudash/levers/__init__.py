"""The levers of a training that was not written for gpudash: a family in each module."""
