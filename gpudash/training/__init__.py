"""One loop that obeys, in every process that trains: a script of the user's, a workload, its ranks.

The kinds of training differ in two protocols: `Levers` and `CommandedTraining` (`commanded.py`).
`CommandLoop` has the rest: whoever steps the training calls `turn` between two steps, and only
while `is_busy`. So a step without commands costs the host one look at a flag and at the time.

Two counts of steps differ where a batch is prepared ahead. `step` is trained. `taken` is the last
step if the training ended here. It is the same on all ranks at the same border, so decisions are
made by it.

A script's levers change nothing where they refuse. A workload is rebuilt half-way by then, so it
goes back to the settings that last worked, which is a change of its own.

A command for all ranks names a step (`at_step`), at whose border they vote: all obey or none. While
blocks run, rank 0 names the step of the next vote, as only its clock counts.
"""
