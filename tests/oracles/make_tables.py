"""Writes tests/fixtures/tables: the same rows as JSON lines, and as Parquet and Arrow in the ways that the writers have.

    .venv/bin/python tests/oracles/make_tables.py

Needs pyarrow, which `make setup` puts into .venv.
"""

import base64
import io
import json
import os
import pathlib

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "tables"


def rows():
    """As a hub's data set has them: pictures as bytes, turns as structs, keys that some rows lack."""
    made = []
    for i in range(60):
        picture = bytes((i * 7 + k) % 256 for k in range(40 + i % 5))
        turns = [{"role": "user", "content": f"<image>what is {i}? é"}, {"role": "assistant", "content": f"number {i}"}]
        if i % 3 == 0:
            turns[1]["loss"] = i % 2 == 0
        if i % 7 == 0:
            turns += [{"role": "user", "content": ""}, {"role": "assistant", "content": "yes\n" * (i % 4)}]
        row = {"id": i, "messages": turns, "score": i / 4}
        if i % 5 != 4:
            row["images"] = [{"bytes": picture, "path": f"{i}.png"}] + ([{"bytes": picture[::-1]}] if i % 6 == 0 else [])
        if i % 11 == 0:
            row["objects"] = {"ref": ["a", "b"][: i % 3], "bbox": [[1.5, 2, 3, 4]] * (i % 3)}
        if i % 4 == 0:
            row["images"] = []
        made.append(row)
    return made


def as_json(value):
    """Bytes as data: URIs, nothing for null."""
    if isinstance(value, bytes):
        return "data:;base64," + base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items() if one is not None}
    return value


def write_talk():
    """Rows that a model can be trained on, with pictures that are pictures: one pixel each."""
    png = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
    made = []
    for i in range(40):
        mark = "<image>" if i % 3 == 0 else ""
        row = {"messages": [{"role": "user", "content": f"{mark}say {i}" + "!" * (i % 5)}, {"role": "assistant", "content": f"number {i}"}],
               "images": [{"bytes": png, "path": None}] if mark else []}
        made.append(row)
    table = pa.Table.from_pylist(made)
    with open(FOLDER / "talk.jsonl", "w", encoding="utf-8") as out:
        for row in table.to_pylist():
            out.write(json.dumps(as_json(row)) + "\n")
    pq.write_table(table, FOLDER / "talk.parquet", row_group_size=7)
    with pa.ipc.new_stream(str(FOLDER / "talk.arrow"), table.schema) as out:
        out.write_table(table, max_chunksize=9)


def write_lzo():
    """A file that says of a column that it is compressed with LZO, which Arrow does not read: one byte of the footer, found by trying."""
    whole = (FOLDER / "talk.parquet").read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little")
    for at in range(len(whole) - 8 - footer, len(whole) - 8):
        if whole[at] != 2:  # snappy, as thrift writes it
            continue
        changed = whole[:at] + b"\6" + whole[at + 1:]
        child = os.fork()  # pyarrow ends the process for some changes
        if child == 0:
            os.close(2)
            try:
                meta = pq.ParquetFile(io.BytesIO(changed)).metadata
                os._exit(7 if meta.num_rows == 40 and meta.row_group(0).column(0).compression == "LZO" else 0)
            except BaseException:
                os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7:
            (FOLDER / "lzo.parquet").write_bytes(changed)
            return
    raise SystemExit("no byte of the footer makes it LZO")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_talk()
    write_lzo()
    all_rows = rows()
    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    turn = pa.struct([("role", pa.string()), ("content", pa.string()), ("loss", pa.bool_())])
    objects = pa.struct([("ref", pa.list_(pa.string())), ("bbox", pa.list_(pa.list_(pa.float64())))])
    schema = pa.schema([("id", pa.int64()), ("messages", pa.list_(turn)), ("score", pa.float32()),
                        ("images", pa.list_(picture)), ("objects", objects)])
    table = pa.Table.from_pylist(all_rows, schema=schema)
    with open(FOLDER / "rows.jsonl", "w", encoding="utf-8") as out:
        for row in table.to_pylist():
            out.write(json.dumps(as_json(row), ensure_ascii=False) + "\n")
    parquet = {
        "plain": {"compression": "none", "use_dictionary": False},
        "snappy": {},
        "groups": {"row_group_size": 7, "compression": "zstd"},
        "pages": {"data_page_size": 64, "write_batch_size": 4, "compression": "gzip"},
        "pages2": {"data_page_size": 64, "write_batch_size": 4, "data_page_version": "2.0", "compression": "lz4"},
        "brotli": {"compression": "brotli", "use_compliant_nested_type": False},
    }
    for name, options in parquet.items():
        pq.write_table(table, FOLDER / f"{name}.parquet", **options)
    with pa.ipc.new_file(str(FOLDER / "file.arrow"), schema) as out:
        out.write_table(table, max_chunksize=9)
    with pa.ipc.new_stream(str(FOLDER / "stream.arrow"), schema) as out:
        out.write_table(table, max_chunksize=9)
    thousand = pa.concat_tables([table] * 17).slice(0, 1000).combine_chunks()  # as many as the datasets library has in a batch
    with pa.ipc.new_stream(str(FOLDER / "thousand.arrow"), schema) as out:
        out.write_table(thousand)
    pa.feather.write_feather(table, str(FOLDER / "lz4.arrow"), compression="lz4", chunksize=9)


if __name__ == "__main__":
    main()
