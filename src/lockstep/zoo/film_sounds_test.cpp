#include "lockstep/zoo/film_sounds.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

Sample row(const std::vector<std::string>& texts, size_t films, const std::vector<std::string>& clips) {
  Sample sample;
  for (const auto& text : texts) sample.messages.push_back({.role = "user", .content = text});
  for (size_t i = 0; i < films; ++i) sample.videos.push_back({.frames = {"f" + std::to_string(i)}});
  sample.audios = clips;
  sample.where = "rows.jsonl:4";
  return sample;
}

std::vector<std::string> sounds(const Sample& sample) {
  std::vector<std::string> found;
  for (const auto& film : sample.videos) found.push_back(film.sound);
  return found;
}

using Texts = std::vector<std::string>;

TEST(FilmSounds, TheClipInFrontOfAFilmIsItsSound) {
  const Sample made = with_film_sounds(row({"<audio><video>What, and <audio>?"}, 1, {"a", "b"}));
  EXPECT_EQ(sounds(made), Texts{"a"});
  EXPECT_EQ(made.audios, Texts{"b"});
  EXPECT_EQ(made.messages[0].content, "<video>What, and <audio>?");
}

TEST(FilmSounds, SoIsTheOneBehindItAndLineBreaksBetweenGoWithIt) {
  const Sample made = with_film_sounds(row({"See <video>\n<audio>\nWhat?", "<audio>\n<video>"}, 2, {"a", "b"}));
  EXPECT_EQ(sounds(made), (Texts{"a", "b"}));
  EXPECT_TRUE(made.audios.empty());
  EXPECT_EQ(made.messages[0].content, "See <video>\nWhat?");
  EXPECT_EQ(made.messages[1].content, "<video>");
}

TEST(FilmSounds, AClipIsTheSoundOfOneFilm) {
  const Sample made = with_film_sounds(row({"<audio><video><audio><video>"}, 2, {"a", "b"}));
  EXPECT_EQ(sounds(made), (Texts{"a", "b"}));
  const Sample around = with_film_sounds(row({"<video><audio><audio><video>"}, 2, {"a", "b"}));
  EXPECT_EQ(sounds(around), (Texts{"a", "b"}));
}

TEST(FilmSounds, AFilmWithItsSoundKeepsItAndRowsWithoutFilmsStay) {
  Sample given = row({"<audio><video>"}, 1, {"a"});
  given.videos[0].sound = "own";
  EXPECT_EQ(sounds(with_film_sounds(given)), Texts{"own"});
  EXPECT_EQ(with_film_sounds(given).audios, Texts{"a"});
  const Sample heard = row({"<audio>What?"}, 0, {"a"});
  EXPECT_EQ(with_film_sounds(heard).audios, Texts{"a"});
  EXPECT_EQ(with_film_sounds(heard).messages[0].content, "<audio>What?");
}

TEST(FilmSounds, AFilmWithoutSoundIsRefusedByItsNumber) {
  for (const auto& text : {"<video>What?", "<audio> and <video>"}) {
    try {
      (void)with_film_sounds(row({text}, 1, {"a"}));
      ADD_FAILURE() << text;
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kData);
      EXPECT_NE(std::string(e.what()).find("rows.jsonl:4: expected the sound of video 1 of 1"), std::string::npos)
          << e.what();
    }
  }
}

TEST(FilmSounds, MarksWithoutMediaAreLeftForOthersToRefuse) {
  const Sample made = with_film_sounds(row({"<audio><video><video>"}, 1, {"a"}));
  EXPECT_EQ(sounds(made), Texts{"a"});
  EXPECT_EQ(made.messages[0].content, "<video><video>");
}

}  // namespace
}  // namespace lockstep
