"""What must be said of every fault: who, what it did, which call, line, field or parameter, and whether the job must end.

`row` numbers the list of faults that all systems are measured with; row 0 are jobs without any. Places stand in the jobs themselves: the
lines marked "# here" in the function of the fault, and those marked "# here: FAULT, …" anywhere.
"""
import re
from dataclasses import dataclass
from pathlib import Path

from fault import draw

JOBS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Truth:
    row: int
    job: str
    fault: str
    what: str = ""  # it did, in the first line; empty: nothing is wrong
    op: str = ""  # of the culprit's call, or of the one in which it is missed; several: any of them
    name: str = ""  # of the field, the parameter or the file, as a regular expression
    who: str = "culprit"  # "side": of two ranks either, if the text says so; "pair": it or both; "all": no one alone; "nobody": not asked
    ends: str = "must"  # "may": saying it is enough; "never": nothing is wrong, or nothing that a job must end for
    stalls: bool = False  # nothing but time tells: the patience is made short
    least: int = 2  # ranks that it takes

    @property
    def title(self):
        return f"{self.job} {self.fault}"

    def is_right_about(self, named, text, seed, world):
        """Whether the set of ranks that are named may be named; None where it is not asked."""
        culprit = draw(self.fault, seed, world)[0]
        if self.who == "nobody":
            return None
        if self.who == "all":
            return bool(text) and named in (set(), set(range(world)))
        if self.who == "pair" and named == {culprit, (culprit + 1) % world}:
            return True
        if world == 2 and self.who in ("side", "pair") and (named == {0, 1} or "equally strong" in text and len(named) == 1):
            return True
        return named == {culprit}

    def places(self):
        """(file, line) of all that may be named."""
        return places_in(f"{self.job}.py", self.fault) | places_in("models.py", self.fault)


def places_in(file, fault):
    found, inside = set(), False
    for number, line in enumerate((JOBS / file).read_text().splitlines(), 1):
        if re.match(r"\S", line):
            inside = line.startswith(f"def {fault}(")
        _, marked, names = line.partition("# here")
        if marked and (inside if not names else fault in re.findall(r"\w+", names)):
            found.add((file, number))
    return found


def side(row, job, fault, what, op, name="", **more):
    return Truth(row, job, fault, what, op, name, who="side", **more)


SHAPE, DTYPE, ROOT, REDUCTION = "shape", "dtype", "root|source", "reduc"
CALL, ORDER, SKIPPED = "another call", "order|swapped", "skipped|left out|fewer"
STRUCTURE = f"structure|{SKIPPED}"
EXITED, RAISED, OOM, GONE, STOPPED = "finished|ended|left", "ValueError", "allocate|memory", "gone|killed", "stopped"
NO_DATA, ABSENT, TYPE = "data|collat", "not come|absent|missing|other nodes?", "str|type|structure"
UNUSED = f"{STRUCTURE}|reduction|parameter"
TOWER = r"\b(vision_tower|connector)\b"  # the part that a batch of text leaves out
PARAMETER = r"\b(body|vision_tower|connector|head)\.(weight|bias)"

PLAIN = [
    side(7, "plain", "shape_4_6", SHAPE, "all_reduce"),
    side(8, "plain", "shape_200k_300k", SHAPE, "all_reduce"),
    side(9, "plain", "shape_2x3_3x2", SHAPE, "all_reduce"),
    side(10, "plain", "dtype_f64_f32", DTYPE, "all_reduce"),
    side(11, "plain", "dtype_i32_f32", DTYPE, "all_reduce"),
    side(12, "plain", "all_gather_all_reduce", CALL, "all_gather"),
    side(13, "plain", "equal_calls_swapped", ORDER, "all_reduce", ends="may"),
    side(14, "plain", "kinds_swapped", ORDER, "broadcast"),
    side(15, "plain", "sum_max", REDUCTION, "all_reduce"),
    side(16, "plain", "tuple_2_1", STRUCTURE, "all_gather"),
    side(17, "plain", "uneven_first_dim", SHAPE, "all_gather"),
    side(18, "plain", "none_tensor", STRUCTURE, "all_reduce"),
    side(20, "plain", "broadcast_source", ROOT, "broadcast"),
    side(28, "plain", "wider_layer", SHAPE, "all_reduce", r"\b0\.weight"),
    side(29, "plain", "one_layer_more", "made|shape|besides|parameter", "all_reduce", r"\b2\.(weight|bias)"),
    side(32, "plain", "all_reduce_skipped", SKIPPED, "all_reduce"),
    Truth(33, "plain", "large_objects", ends="never", who="nobody"),
    side(35, "plain", "barrier_missing", SKIPPED, "barrier"),
    Truth(36, "plain", "slow_rank", ends="never", who="nobody"),
    Truth(37, "plain", "group_of_members", ends="never", who="nobody"),
    side(38, "plain", "wrong_group", "group", "all_reduce"),
    side(38, "plain", "groups_in_another_order", ORDER, "new_group"),
    side(38, "plain", "group_left_out", f"not come|{SKIPPED}", "new_group"),
    Truth(39, "plain", "both_receive_later", "wait for each other|recv", "recv", who="pair"),
    side(39, "plain", "send_left_out", f"not send|{SKIPPED}", "send|recv"),
    side(39, "plain", "receive_left_out", f"not receive|{SKIPPED}", "send|recv"),
    Truth(39, "plain", "send_to_another", "sends to rank", "send", least=3),
    Truth(39, "plain", "both_receive", "wait for each other|recv", "recv", who="pair"),
    Truth(40, "plain", "short_receive", SHAPE + "|size|recv|send", "recv|send", who="pair"),
]

ENDS = [
    Truth(1, "ends", "exit_early", EXITED, "all_reduce"),
    Truth(2, "ends", "raises", RAISED, name="row 17 has no caption"),
    Truth(3, "ends", "raises_then_barrier", RAISED, "barrier", "row 17 has no caption"),
    Truth(4, "ends", "sigkill", GONE),
    Truth(4, "ends", "sigabrt", "SIGABRT"),
    Truth(4, "ends", "sigterm", "SIGTERM", ends="may"),
    Truth(5, "ends", "sigstop", STOPPED, "all_reduce"),
    Truth(6, "ends", "stalled_data", NO_DATA, "all_reduce", stalls=True),
    Truth(30, "ends", "out_of_memory", OOM),
    side(31, "ends", "out_of_memory_caught", SKIPPED, "all_reduce|barrier"),
    Truth(34, "ends", "unpicklable", "pickle"),
    Truth(34, "ends", "unsaved", "PicklingError|AttributeError"),
    Truth(41, "ends", "stale_lock", r"\block\b", name=r"\block\b(?!step)", who="all", stalls=True),
]

MEETING = [
    Truth(24, "meeting", "absent_rank", ABSENT, who="culprit", stalls=True),
    Truth(24, "meeting", "ends_before", "ended"),
    Truth(24, "meeting", "absent_node", ABSENT, name=r"node 1\b|second node|other node|1 of 2 nodes", who="nobody", stalls=True),
    Truth(25, "meeting", "other_world_size", "WORLD_SIZE|world size", name="WORLD_SIZE", who="side", stalls=True),
]

DDP = [
    Truth(1, "ddp", "exit_early", EXITED, "all_reduce"),
    Truth(2, "ddp", "raises", RAISED, name="row 17 has no caption"),
    Truth(4, "ddp", "sigkill", GONE),
    Truth(5, "ddp", "sigstop", STOPPED, "all_reduce"),
    Truth(6, "ddp", "stalled_data", NO_DATA, "all_reduce", stalls=True),
    side(21, "ddp", "tower_unused", UNUSED, "all_reduce|reduction", TOWER),
    side(22, "ddp", "tower_unused_in_turn", UNUSED, "all_reduce|reduction", TOWER),
    Truth(26, "ddp", "nan_gradient", "[Nn]a[Nn]|finite", "all_reduce", PARAMETER, ends="may"),
    side(27, "ddp", "deeper_model", "param|model|layer", "all_gather|DistributedDataParallel|DDP", r"\bdeep\.\d"),
    Truth(30, "ddp", "out_of_memory", OOM),
    side(31, "ddp", "out_of_memory_caught", SKIPPED, "all_reduce|barrier"),
    Truth(36, "ddp", "slow_rank", ends="never", who="nobody"),
]

FSDP2 = [
    Truth(6, "fsdp2", "stalled_backward", "backward", "reduce_scatter", stalls=True),
    side(23, "fsdp2", "tower_unused", UNUSED, "all_gather", TOWER),
]

ACCELERATE = [
    Truth(1, "accelerated", "exit_early", EXITED, "all_reduce"),
    Truth(6, "accelerated", "stalled_data", NO_DATA, "all_reduce", stalls=True),
    side(7, "accelerated", "reduce_shape", SHAPE, "all_reduce|reduce"),
    side(11, "accelerated", "gather_dtype", DTYPE, "all_gather"),
    side(13, "accelerated", "equal_calls_swapped", ORDER, "all_gather", ends="may"),
    side(16, "accelerated", "tuple_2_1", STRUCTURE, "gather", "image_sizes"),
    side(17, "accelerated", "uneven_first_dim", SHAPE, "all_gather"),
    side(18, "accelerated", "none_tensor", f"{STRUCTURE}|{TYPE}", "gather", "image_sizes"),
    side(19, "accelerated", "word_for_tensor", TYPE, "gather", "image_sizes"),
    side(20, "accelerated", "broadcast_source", ROOT, "broadcast"),
    side(21, "accelerated", "tower_unused", UNUSED, "all_reduce|reduction", TOWER),
    side(32, "accelerated", "gather_skipped", SKIPPED, "all_gather"),
]

TRAINER = [
    Truth(1, "hf_trainer", "stops_early", "made|skipped|finished|stopped|left|ended", "all_reduce|all_gather|broadcast|barrier"),
    Truth(2, "hf_trainer", "raises", RAISED, name="row 17 has no caption"),
    Truth(4, "hf_trainer", "sigkill", GONE),
    Truth(5, "hf_trainer", "sigstop", STOPPED, "all_reduce|all_gather"),
    Truth(6, "hf_trainer", "stalled_data", NO_DATA, "all_reduce|all_gather", stalls=True),
]

LLAVA = [
    side(16, "hf_llava", "metadata_shorter", STRUCTURE, "gather", "metadata"),
    side(16, "hf_llava", "metadata_2d", STRUCTURE, "gather", "metadata"),
    side(18, "hf_llava", "metadata_missing", STRUCTURE, "gather", "metadata"),
    side(19, "hf_llava", "metadata_words", TYPE, "gather|pad_across_processes", "metadata"),
    side(18, "hf_llava", "image_on_some", STRUCTURE, "gather", "image_hidden_states"),
]

ZERO = [
    Truth(1, "zero", "exit_early", EXITED, "all_gather|reduce_scatter|all_reduce"),
    Truth(6, "zero", "stalled_data", NO_DATA, "all_gather|reduce_scatter|all_reduce", stalls=True),
    Truth(1, "zero", "exit_early_kept", EXITED, "reduce_scatter"),
    Truth(6, "zero", "stalled_data_kept", NO_DATA, "reduce_scatter", stalls=True),
    side(21, "zero", "tower_unused", UNUSED, "all_gather|reduce_scatter", TOWER),
    side(21, "zero", "tower_unused_zero2", f"{UNUSED}|shape", "all_reduce|reduce|reduce_scatter", TOWER),
    Truth(26, "zero", "nan_gradient", "[Nn]a[Nn]|finite", "all_reduce|reduce_scatter", PARAMETER, ends="may"),
    side(27, "zero", "deeper_model", "param|model|layer|shape", "broadcast|all_gather|reduce_scatter|all_reduce", r"\bdeep\.\d"),
    Truth(41, "zero", "stale_lock", r"\block\b", name=r"\block\b(?!step)", who="all", stalls=True),
]

CONTROLS = [Truth(0, job, "none", ends="never", who="nobody")
            for job in ("plain", "ends", "ddp", "fsdp2", "accelerated", "hf_trainer", "hf_llava", "zero")]
CONTROLS.append(Truth(0, "zero", "none_zero2", ends="never", who="nobody"))

TRUTHS = sorted(CONTROLS + PLAIN + ENDS + MEETING + DDP + FSDP2 + ACCELERATE + TRAINER + LLAVA + ZERO, key=lambda truth: truth.row)
