"""A training process ends with all that was to be done at its end."""

import subprocess
import sys

CODE = """
import atexit, time
from threading import Thread
from workloads.lifetime import end

class Freed:
    def __del__(self):
        print("freed")

atexit.register(print, "at exit")
kept = Freed()
Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
print("main")
end(3)
"""


def test_threads_end_what_is_registered_is_called_and_nothing_is_freed():
    done = subprocess.run(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "main\nthread\nat exit\n")
