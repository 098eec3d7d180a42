"""Pictures and sounds as people's tools write them: taken as Pillow and soundfile take what is the same."""
import base64
import io
import json

import numpy
import soundfile
from PIL import Image, ImageOps, PngImagePlugin

from small_job import make_model
from story import Story, main

ORIENTATION = 0x112


def noise(width, height, seed):
    return Image.fromarray(numpy.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=numpy.uint8))


def chirp(seconds, rate):
    at = numpy.arange(int(seconds * rate)) / rate
    return (0.4 * numpy.sin(2 * numpy.pi * (200 + 50 * at) * at) + 0.05 * numpy.random.default_rng(1).random(at.size)).astype("float32")


def first_frame(mp3):
    """Its bytes, of MPEG 1 or 2, layer III."""
    version = mp3[1] >> 3 & 3
    kbit = ([0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320] if version == 3 else
            [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160])[mp3[2] >> 4]
    rate = {3: [44100, 48000, 32000], 2: [22050, 24000, 16000]}[version][mp3[2] >> 2 & 3]
    return (144 if version == 3 else 72) * kbit * 1000 // rate + (mp3[2] >> 1 & 1)


class Media(Story):
    def vectors(self, model, rows):
        """Of each row: how many tokens, and the numbers."""
        self.runs = getattr(self, "runs", 0) + 1
        path, out = self.folder / f"{self.runs}.jsonl", self.folder / f"vectors{self.runs}"
        path.write_text("".join(json.dumps({"response": "b", **row}) + "\n" for row in rows))
        self.lockstep("embed", "--model", model, "--dataset", path, "--output", out, "--strict", "true", expect=0)
        found = [json.loads(line) for line in (out / "embeddings.jsonl").read_text().splitlines()]
        return [(one["tokens"], one["embedding"]) for one in found]

    def refused(self, model, row, *said):
        path = self.folder / "refused.jsonl"
        path.write_text(json.dumps({"response": "b", **row}) + "\n")
        done = self.lockstep("embed", "--model", model, "--dataset", path, "--output", self.folder / "none", "--strict", "true", expect=3)
        for part in said:
            self.assertIn(part, done.stderr)

    def of_pictures(self, model, files):
        return self.vectors(model, [{"query": "<image>a", "images": [str(file)]} for file in files])

    def of_sounds(self, model, files):
        return self.vectors(model, [{"query": "<audio>a", "audios": [str(file)]} for file in files])

    def test_a_png_is_turned_as_its_text_says(self):
        stored, model = noise(61, 47, 0), make_model(self.folder, "qwen2_5_vl")
        pairs = []
        for turn in (3, 6, 8):
            exif = Image.Exif()
            exif[ORIENTATION] = turn
            block = b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")
            profile = f"\nexif\n{len(block):8d}\n" + "\n".join(block.hex()[at:at + 72] for at in range(0, 2 * len(block), 72)) + "\n"
            for zipped in (False, True):
                raw, xmp = PngImagePlugin.PngInfo(), PngImagePlugin.PngInfo()
                raw.add_text("Raw profile type exif", profile, zip=zipped)
                xmp.add_itxt("XML:com.adobe.xmp", f'<x tiff:Orientation="{turn}"/>', zip=zipped)
                for name, info in (("raw", raw), ("xmp", xmp)):
                    file, plain = self.folder / f"{name}{turn}{zipped}.png", self.folder / f"plain_{name}{turn}{zipped}.png"
                    stored.save(file, pnginfo=info)
                    turned = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
                    self.assertNotEqual(turned.tobytes(), stored.tobytes(), file)
                    Image.fromarray(numpy.asarray(turned)).save(plain)
                    pairs.append((file, plain))
        for ours, plain, pair in zip(self.of_pictures(model, [a for a, _ in pairs]), self.of_pictures(model, [b for _, b in pairs]), pairs):
            self.assertEqual(ours, plain, pair)

    def test_an_mp3_is_heard_to_its_end_without_a_header_that_states_it(self):
        model, whole, bare = make_model(self.folder, "qwen2_5_omni"), [], []
        for rate in (44100, 22050, 48000, 16000):
            for mode in ("VARIABLE", "CONSTANT"):
                whole.append(self.folder / f"{rate}{mode}.mp3")
                bare.append(self.folder / f"bare{rate}{mode}.mp3")
                soundfile.write(whole[-1], chirp(9, rate), rate, format="MP3", bitrate_mode=mode, compression_level=0.6)
                mp3 = whole[-1].read_bytes()
                stated = first_frame(mp3)
                self.assertTrue(b"Xing" in mp3[:stated] or b"Info" in mp3[:stated])
                bare[-1].write_bytes(mp3[stated:])
        for (expected, _), (found, _), file in zip(self.of_sounds(model, whole), self.of_sounds(model, bare), bare):
            self.assertGreater(expected, 220)
            self.assertTrue(expected <= found <= expected + 2, f"{file}: {found} tokens, {expected} with the header")
        (self.folder / "cut.mp3").write_bytes(bare[0].read_bytes()[:-300])
        self.refused(model, {"query": "<audio>a", "audios": [str(self.folder / "cut.mp3")]}, "cut short")

    def test_a_tag_behind_a_flac_and_lengths_of_pipes_take_nothing_away(self):
        model, sound = make_model(self.folder, "qwen2_5_omni"), chirp(2, 16000)
        names = {name: self.folder / name for name in ("a.flac", "tagged.flac", "a.wav", "31.wav", "most.wav", "less.wav")}
        soundfile.write(names["a.flac"], sound, 16000)
        names["tagged.flac"].write_bytes(names["a.flac"].read_bytes() + b"TAG" + bytes(125))
        soundfile.write(names["a.wav"], sound, 16000, subtype="PCM_16")
        wav = names["a.wav"].read_bytes()
        at = wav.index(b"data") + 4
        for name, length in (("31.wav", 0x80000000), ("most.wav", 0xFFFFF000), ("less.wav", 0xFFFFFFDB)):
            names[name].write_bytes(wav[:at] + length.to_bytes(4, "little") + wav[at + 4:])
        found = dict(zip(names, self.of_sounds(model, names.values())))
        self.assertEqual(found["tagged.flac"], found["a.flac"])
        for name in ("31.wav", "most.wav", "less.wav"):
            self.assertEqual(found[name], found["a.wav"], name)

    def test_a_small_medium_that_stands_in_the_row_is_read(self):
        model, out = make_model(self.folder, "qwen2_5_vl"), io.BytesIO()
        Image.new("RGB", (40, 30), (200, 30, 30)).save(out, "PNG")
        self.assertLess(len(out.getvalue()), 120)
        (self.folder / "a.png").write_bytes(out.getvalue())
        text = base64.b64encode(out.getvalue()).decode()
        part = lambda medium: {"messages": [{"role": "user", "content": [medium, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": "b"}]}
        rows = [{"query": "<image>a", "images": [str(self.folder / "a.png")]}, {"query": "<image>a", "images": [text]},
                {"query": "<image>a", "images": [f"DATA:image/png;BASE64,{text}"]}, part({"type": "image", "base64": text}), part({"type": "image", "bytes": text})]
        found = self.vectors(model, rows)
        for row, one in zip(rows[1:], found[1:]):
            self.assertEqual(one, found[0], row)

    def test_what_a_part_says_and_nothing_would_heed_is_refused(self):
        (self.folder / "a.png").write_bytes(b"")
        soundfile.write(self.folder / "a.wav", chirp(1, 16000), 16000)
        model = make_model(self.folder, "qwen2_5_omni")
        asked = lambda part, **row: {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "a"}]}, {"role": "assistant", "content": "b"}], **row}
        frames = [str(self.folder / "a.png")] * 2
        self.refused(model, asked({"type": "video", "nframes": 4}, videos=[frames]), "content[0].nframes", "the medium, or nothing")
        self.refused(model, asked({"type": "audio", "audio": "a.wav", "audio_start": 0.5}), "content[0].audio_start", "a whole clip")
        self.refused(model, {"query": "<audio>a", "audios": [{"path": "a.wav", "audio_end": 0.5}]}, "audios[0].audio_end")
        self.refused(model, {"query": "<image>a", "images": ["a.png\0.jpg"]}, "images[0]", "a byte of zero")


if __name__ == "__main__":
    main()
