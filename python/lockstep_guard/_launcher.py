"""Ranks of torchrun before they have joined: which process has started them, and what those leave behind that end without having met the others.

torchrun ends the job when a rank fails, and waits where one ends well: the others then wait for it in init_process_group until they give up. A
rank leaves its exit code beside its error file, and those that wait look for it there.
"""
import os
import threading
import time
from pathlib import Path

MARK = "ended_before_meeting"  # each rank has a folder of its own: …/attempt_0/LOCAL_RANK/error.json
PAUSE = 0.2


def torchrun():
    """The nearest process above that was not started with what torchrun tells its ranks: a shell may stand between."""
    pid = os.getppid()
    try:
        while pid > 1 and b"TORCHELASTIC_RUN_ID=" in Path(f"/proc/{pid}/environ").read_bytes():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # of somebody else
        pass
    return pid


def folder_of_ranks():
    """Of this rank's attempt; None: torchrun has not started this, or another one lays its files out otherwise."""
    own, local_rank = os.environ.get("TORCHELASTIC_ERROR_FILE", ""), os.environ.get("LOCAL_RANK", "")
    if "TORCHELASTIC_RUN_ID" not in os.environ or not local_rank or Path(own).parent.name != local_rank:
        return None
    return Path(own).parent.parent


def tell_end(native):
    """Of the rank itself, and of no process that it has started: those have its environment too."""
    folder = folder_of_ranks()
    if folder is not None and os.getppid() == torchrun() > 1:
        native.mark_end(str(folder / os.environ["LOCAL_RANK"] / MARK))


def watch_for_ends(native, place, is_over):
    """Until the ranks have met. Whoever sees it says it: the agent hears the first."""
    folder = folder_of_ranks()
    if folder is None or (str(place.rank), str(place.local_rank)) != (os.environ.get("RANK"), os.environ["LOCAL_RANK"]):
        return  # these are ranks of another job than torchrun's
    marks = {place.rank - place.local_rank + other: folder / str(other) / MARK for other in range(place.local_world) if other != place.local_rank}

    def watch():
        while not is_over():
            for rank, mark in list(marks.items()):
                try:
                    code = int(mark.read_text())
                except (OSError, ValueError):  # it is there still, or runs on
                    continue
                del marks[rank]
                native.tell_ended(rank, code)
            time.sleep(PAUSE)

    threading.Thread(target=watch, daemon=True).start()
