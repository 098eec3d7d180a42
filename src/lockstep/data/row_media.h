// The images, videos and audios of one row: those named in its fields, those inside its messages, and the marks that tie them
// together.
// Used by sample_from_row alone.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/media_folders.h"
#include "lockstep/data/sample.h"

namespace lockstep {

/// `train.jsonl:17: field "images": expected a list of paths, found 3`. Long values are cut.
UserError field_error(const std::string& where, const std::string& field, const std::string& expected,
                      const Json& found);

class RowMedia {
 public:
  /// Reads `images` | `image`, `videos` | `video`, a video as a file, a list of frames or an object with either and what
  /// is asked for besides ({"frames": [...], "fps": 2}), and `audios` | `audio`. Throws UserError(kData) for URLs, what is
  /// no reference to a file, and what is asked for under other names.
  RowMedia(const Json& row, const std::string& where, const MediaFolders& folders);

  /// A turn whose content is a string or OpenAI's list of parts, with "<image>", "<video>" and "<audio>" where media stand.
  /// Call it in the order of the messages. Throws UserError(kData).
  Message message(std::string role, const Json& content, const std::string& field);

  /// Matches marks with images and videos, puts marks that are missing in front of the first user message, and fills
  /// sample.images, videos and audios. Throws UserError(kData) when there are more marks than media.
  void resolve(Sample& sample) const;

 private:
  std::string reference(const Json& value, const std::string& field) const;
  std::string picture(const Json& value, const std::string& field) const;
  void refuse_size(const Json& value, const std::string& field) const;
  std::string sound(const Json& value, const std::string& field) const;
  void refuse_part(const Json& value, const std::string& field) const;
  const char* source_of(const Json& part, const std::string& field, const char* kind,
                        std::span<const char* const> keys) const;
  std::string path_reference(const std::string& text, const std::string& field) const;
  void read_images(const Json& value, const std::string& field);
  void read_videos(const Json& value, const std::string& field);
  void read_audios(const Json& value, const std::string& field);
  Video video(const Json& value, const std::string& field) const;
  void read_wishes(const Json& value, const std::string& field, Video& into) const;
  std::string picture_part(const Json& part, const std::string& field);
  std::string video_part(const Json& part, const std::string& field);
  std::string audio_part(const Json& part, const std::string& field);
  std::string part_text(const Json& part, const std::string& field);
  std::string marked_text(const std::string& text);
  size_t take_mark(std::string_view rest);

  std::string where_;
  MediaFolders folders_;
  bool has_images_ = false;  // a column of them, so that <img>path</img> in a text is text
  std::vector<std::string> row_images_;
  std::map<std::string, std::string> named_images_;  // MiniCPM's {"<image_00>": path}
  std::map<std::string, bool> named_used_;
  std::vector<Video> row_videos_;
  std::vector<std::optional<std::string>> marks_;  // the image that stands at a mark, or the row's next one
  std::vector<std::optional<Video>> video_marks_;
  std::vector<std::string> row_audios_;
  std::vector<std::optional<std::string>> audio_marks_;
};

}  // namespace lockstep
