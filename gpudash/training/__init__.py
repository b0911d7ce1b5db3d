"""One loop that obeys, in every process that trains: a script of the user's, a workload, its ranks.

A reference workload is a script whose levers are richer. What differs is told by two protocols:

- `Levers` (`levers.py`): what there is to move, and how (`settings`, `resolve`, `enter`).
- `CommandedTraining` (`commanded.py`): the training whose steps are counted, measured, settled and
  voted on. What is particular to one kind of training is a method there with a default.

`CommandLoop` (`command_loop.py`) has the rest, and does it in turns: whoever steps the training
calls `turn` between two steps, and only while `is_busy`. So a step without commands costs the host
one look at a flag and at the time. The loop obeys the commands in their order, each answered once.
What lasts longer than a turn has a module each, and the loop gives each its turn:

- the switch to other settings, which may wait for a rehearsal (`switching.py`);
- the run of blocks (`block_run.py`, `block_queue.py`) and their time by the wall clock
  (`wall_clock.py`);
- the profile in progress (`tracing.py`).

What is refused is told in one place (`replies.py`), and so is what becomes of the training
(`instrument/life.py`).

Two counts of steps differ on two streams, where a batch is prepared ahead. `step` is trained.
`taken` is the last step if the training ended here. It is the same on all ranks at the same border,
so decisions are made by it. Events report `step`.

A failure of settings. A script's levers change nothing where they refuse. A workload is rebuilt
half-way by then, so it goes back to the settings that last worked (`put_back` returns a `Return`),
which is a change of its own. A step that runs out of memory comes the same way (`recover`).

Several ranks. A command for all of them names a step (`at_step`). The ranks vote at its border
through the store of their process group (`agreement.py`), without a collective, and all obey or
none. While blocks run, rank 0 names the step of the next vote and what it means
(`decision_steps.py`), as only its clock counts. A paused training is at one step on all ranks, so
what is asked meanwhile is due at once.
"""
