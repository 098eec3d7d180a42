#include <set>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/train/bpe_trainer.h"

namespace lockstep {
namespace {

void collect_strings(const Json& node, std::string& out) {
  static const std::set<std::string> kNotText{"image", "images", "video", "videos", "audio",   "audios",
                                              "role",  "from",   "id",    "group",  "channel", "path"};
  if (node.is_string()) out += node.get<std::string>() + "\n";
  if (node.is_array()) {
    for (const auto& item : node) collect_strings(item, out);
  }
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) {
      if (!kNotText.contains(key)) collect_strings(value, out);
    }
  }
}

constexpr std::string_view kCorpus =
    R"(The quick way to learn a thing is to do it by hand, then to explain it to a friend.
What colour is the circle? The circle is red. What colour is the square? The square is blue.
What shape is green? The triangle is green. What shape is yellow? The diamond is yellow.
How many shapes are there? There are three shapes. There are two circles and one star.
Where is the square? The square is in the middle. The circle is at the top left, the star at the bottom right.
Which one is larger, the purple circle or the orange square? The orange square is larger than the purple circle.
Is there an image? Yes, there is one image. Is there a red shape on the left? No, there is not.
What is in this picture? A small white house stands near the river, and behind it there are tall trees.
Describe the picture in one sentence. A child with a yellow hat is feeding the ducks at the lake.
What is the opposite of hot? cold. What is the opposite of big? small. What comes after one? two. After two? three.
Count from one to ten: one, two, three, four, five, six, seven, eight, nine, ten.
In the morning the sun comes up over the hill, and in the evening it goes down behind the sea.
She opened the window and looked at the street, where people were walking to work under their umbrellas.
He wrote a letter to his sister, put it into the box at the corner, and waited a week for the answer.
We would like to know when the train leaves, how long it takes, and whether we have to change on the way.
They could not find the key, so they went around the house and tried the other door.
A good question is worth more than a quick answer, because the answer ends the talk and the question begins it.
If you want to bake bread, you need flour, water, salt, yeast, and a few hours of patience.
The teacher asked the class to write down every number between ten and twenty, and then to add them up.
Water boils at one hundred degrees and freezes at zero; ice is lighter than water, so it floats.
The library is open from nine to six on weekdays, from ten to four on Saturday, and closed on Sunday.
First read the instructions, then check that nothing is missing, and only then begin to build.
There was once a king who had three sons; the first was strong, the second was clever, and the third was kind.
Please tell me what you see, where it is, and what it might be used for.
The computer reads the file line by line, counts the words, and prints the result on the screen.
def add(first, second): return first + second
for (int i = 0; i < 10; ++i) { total += values[i]; }
You are a helpful assistant. Thank you for your help! You are welcome. Could you say that again? Of course.
My name is Anna and I live in a small town by the sea. I have two brothers, one sister, and a very old cat.
The price was 12 coins on Monday, 15 on Tuesday, and 9 at the end of the week, so it was best to wait.
Some birds fly south in autumn and come back in spring; others stay with us through the whole winter.
It was not the longest road that was the hardest, but the one on which we had nobody to talk to.
The doctor said that he should rest, drink enough water, eat fresh fruit, and go for a walk every day.
When the rain had stopped, the children ran outside and jumped from one puddle into the next.
From the top of the tower you can see the harbour, the old market, and the mountains far away in the north.
The machine makes a low sound when it starts, a high one when it runs, and none at all when it is broken.
Every rule has a reason, and when nobody remembers the reason it is time to look at the rule again.
After dinner they played cards, told each other stories, and laughed until the candles had burned down.
)";

}  // namespace

std::string_view default_corpus() { return kCorpus; }

std::string read_corpus(const std::string& path) {
  const std::string text = read_text(path);
  if (path.ends_with(".json")) {
    std::string out;
    collect_strings(parse_json(text, path), out);
    return out;
  }
  if (!path.ends_with(".jsonl")) return text;
  std::string out;
  size_t number = 0;
  for (const auto& line : split(text, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    collect_strings(parse_json(line, path + " row " + std::to_string(number)), out);
  }
  return out;
}

}  // namespace lockstep
