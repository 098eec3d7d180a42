#include "lockstep/data/sound_reader.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <sndfile.h>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

/// Bytes as libsndfile reads a file. mpg123 guesses an MP3's length from its size and its first frame, and reads no further: where
/// the samples are counted the file seems so long that any guess is enough, with zeros behind its bytes that nobody comes to.
struct Cursor {
  std::string_view bytes;
  sf_count_t times = 1;
  sf_count_t at = 0;

  sf_count_t real_size() const { return static_cast<sf_count_t>(bytes.size()); }
  sf_count_t size() const { return real_size() * times; }
};

/// Bytes of one frame to another's: 320 to 32 kbit/s, 160 to 8, and some padding.
constexpr sf_count_t kMostToLeast = 32;

sf_count_t size_of(void* self) { return static_cast<Cursor*>(self)->size(); }
sf_count_t tell(void* self) { return static_cast<Cursor*>(self)->at; }
sf_count_t write_nothing(const void*, sf_count_t, void*) { return 0; }

sf_count_t seek(sf_count_t offset, int whence, void* self) {
  auto* cursor = static_cast<Cursor*>(self);
  const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? cursor->at : cursor->size();
  sf_count_t to = 0;
  if (__builtin_add_overflow(base, offset, &to) || to < 0) return -1;
  cursor->at = std::min(to, cursor->size());
  return cursor->at;
}

sf_count_t read_bytes(void* to, sf_count_t count, void* self) {
  auto* cursor = static_cast<Cursor*>(self);
  const sf_count_t fit = std::clamp<sf_count_t>(cursor->size() - cursor->at, 0, std::max<sf_count_t>(0, count));
  const sf_count_t real = std::clamp<sf_count_t>(cursor->real_size() - cursor->at, 0, fit);
  if (real > 0) std::memcpy(to, cursor->bytes.data() + cursor->at, static_cast<size_t>(real));
  if (fit > real) std::memset(static_cast<char*>(to) + real, 0, static_cast<size_t>(fit - real));
  cursor->at += fit;
  return fit;
}

bool is_of_kind(int format, AudioKind kind) {
  switch (format & SF_FORMAT_TYPEMASK) {
    case SF_FORMAT_WAV:
    case SF_FORMAT_WAVEX:
    case SF_FORMAT_RF64:
      return kind == AudioKind::kWav;
    case SF_FORMAT_FLAC:
      return kind == AudioKind::kFlac;
    case SF_FORMAT_OGG:
      return kind == AudioKind::kOgg;
    default:
      return kind == AudioKind::kMp3 && (format & SF_FORMAT_TYPEMASK) == SF_FORMAT_MPEG;
  }
}

/// Those that are met; each other one that libsndfile knows is more code for a hostile file to reach.
bool is_usual_codec(int format) {
  constexpr std::array kUsual{
      SF_FORMAT_PCM_S8,        SF_FORMAT_PCM_U8,        SF_FORMAT_PCM_16, SF_FORMAT_PCM_24, SF_FORMAT_PCM_32,
      SF_FORMAT_FLOAT,         SF_FORMAT_DOUBLE,        SF_FORMAT_ULAW,   SF_FORMAT_ALAW,   SF_FORMAT_IMA_ADPCM,
      SF_FORMAT_VORBIS,        SF_FORMAT_MS_ADPCM,      SF_FORMAT_OPUS,   SF_FORMAT_GSM610, SF_FORMAT_MPEG_LAYER_I,
      SF_FORMAT_MPEG_LAYER_II, SF_FORMAT_MPEG_LAYER_III};
  const int codec = format & SF_FORMAT_SUBMASK;
  return std::any_of(kUsual.begin(), kUsual.end(), [&](int usual) { return usual == codec; });
}

}  // namespace

struct SoundReader::Impl {
  Cursor cursor;
  SF_INFO info{};
  SNDFILE* file = nullptr;
  AudioKind kind;
  std::string where;
  std::optional<int64_t> counted;
  sf_count_t frames_read = 0;

  Impl(const KnownAudio& audio, std::optional<int64_t> samples, std::string name)
      : cursor{.bytes = audio.bytes, .times = samples ? kMostToLeast : 1},
        kind(audio.kind),
        where(std::move(name)),
        counted(samples) {}
  ~Impl() {
    if (file != nullptr) sf_close(file);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  UserError failed(const std::string& why) const {
    return data_error(
        fmt::format("{}: {} of {} bytes cannot be decoded: {}", where, audio_kind_name(kind), cursor.bytes.size(), why),
        "does it play elsewhere? ffmpeg -i IN -vn -ac 1 -ar 16000 OUT.flac writes it anew");
  }
};

SoundReader::SoundReader(const KnownAudio& audio, std::optional<int64_t> counted, const std::string& where)
    : impl_(std::make_unique<Impl>(audio, counted, where)) {
  SF_VIRTUAL_IO io{.get_filelen = size_of, .seek = seek, .read = read_bytes, .write = write_nothing, .tell = tell};
  impl_->file = sf_open_virtual(&io, SFM_READ, &impl_->info, &impl_->cursor);
  if (impl_->file == nullptr) throw impl_->failed(sf_strerror(nullptr));
  const int format = impl_->info.format;
  if (!is_of_kind(format, audio.kind) || !is_usual_codec(format))
    throw impl_->failed(fmt::format("codec 0x{:x} inside it is none that is read here", format));
  if (impl_->info.channels < 1 || impl_->info.samplerate < 1) throw impl_->failed("it has no channel or no rate");
}

SoundReader::~SoundReader() = default;

int64_t SoundReader::rate() const { return impl_->info.samplerate; }
int64_t SoundReader::channels() const { return impl_->info.channels; }

std::optional<int64_t> SoundReader::stated_frames() const {
  if (impl_->counted) return impl_->counted;
  const sf_count_t frames = impl_->info.frames;
  return frames < 0 || frames == std::numeric_limits<sf_count_t>::max() ? std::nullopt : std::optional<int64_t>(frames);
}

int64_t SoundReader::read(std::span<float> block) {
  // No more than is stated: behind it may stand a tag, in which a decoder of FLAC looks for sound.
  const sf_count_t all = std::min<sf_count_t>(impl_->info.frames, impl_->counted.value_or(impl_->info.frames));
  const sf_count_t wanted =
      std::min(static_cast<sf_count_t>(block.size()) / channels(), std::max<sf_count_t>(0, all - impl_->frames_read));
  const sf_count_t got = sf_readf_float(impl_->file, block.data(), wanted);
  if (sf_error(impl_->file) != SF_ERR_NO_ERROR) throw impl_->failed(sf_strerror(impl_->file));
  impl_->frames_read += std::max<sf_count_t>(0, got);
  return std::max<sf_count_t>(0, got);
}

}  // namespace lockstep
