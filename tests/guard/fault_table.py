"""The table of a run of the fault suite: each fault beside what each system made of it, and their shares."""
import statistics

COUNTED = {"hangs": "no hang", "nothing said": "told", "not ended": "ended", "silently wrong": "not silently wrong",
           "wrong numbers first": "before wrong numbers"}
SHARED = ("culprit", "what", "op", "place", "name")


def markdown(results):
    """One row a fault and number of ranks, one column a system."""
    peers = list(dict.fromkeys(result["peer"] for result in results))
    cells = {(result["row"], result["title"], result["ranks"], result["peer"]): result["words"] for result in results}
    keys = sorted({key[:3] for key in cells}, key=lambda key: (key[2], key[0], key[1]))
    lines = ["| # | fault | ranks | " + " | ".join(peers) + " |", "|---" * (3 + len(peers)) + "|"]
    for row, title, ranks in keys:
        lines.append(f"| {row or ''} | {title} | {ranks} | " + " | ".join(cells.get((row, title, ranks, peer), "") for peer in peers) + " |")
    return "\n".join(lines) + "\n"


def shares(results):
    """Of each system: how many hang or are silently wrong, and how much of what is asked is said rightly and how soon."""
    lines = []
    for peer in dict.fromkeys(result["peer"] for result in results):
        ran = [result for result in results if result["peer"] == peer and not result["skipped"]]
        faults = [result for result in ran if "left alone" not in result["checks"]]
        harmless = [result["checks"]["left alone"] for result in ran if "left alone" in result["checks"]]
        parts = [f"{len(faults)} faults"]
        parts += [f"{word} {sum(result['checks'].get(check) is False for result in faults)}" for word, check in COUNTED.items()]
        parts += [share(word, faults, word) for word in SHARED]
        parts.append(share("culprit of 2 ranks", [result for result in faults if result["ranks"] == 2], "culprit"))
        parts.append(f"left alone {sum(harmless)} of {len(harmless)}")
        parts.append(times("told after", [result.get("named_after") for result in faults if not result["stalls"]]))
        parts.append(times("all gone after another", [result.get("gone_after") for result in faults]))
        lines.append(f"{peer}: " + "; ".join(part for part in parts if part))
    return "\n".join(lines)


def share(word, results, check):
    asked = [bool(result["checks"].get(check)) for result in results if result["checks"].get(check) is not None]
    return f"{word} {sum(asked)} of {len(asked)} ({100 * sum(asked) / len(asked):.0f} %)" if asked else ""


def times(word, seconds):
    known = [value for value in seconds if value is not None]
    return f"{word} {statistics.median(known):.2f} s (median), {max(known):.2f} s (most)" if known else ""
