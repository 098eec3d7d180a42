// The members of a zip file as byte ranges of the file itself: what is stored as it is, as torch.save writes it.
//
// What is checked: the directory at the end (zip64 too), every member's local header, that all bytes lie in the file.
// What is not: the members' CRC-32, which would read all of a mapped model; hashes of a checkpoint do that better.
//
// Example:
//   const ZipMembers zip(file.bytes(), file.path().string());
//   if (const ZipMember* found = zip.find("archive/data.pkl")) use(file.bytes().subspan(found->begin, found->size()));
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Bytes [begin, end) of the file.
struct ZipMember {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

class ZipMembers {
 public:
  /// `file` is the whole file, and outlives this. Throws UserError(kCheckpoint) naming `where`, the member, what was
  /// expected and found: no directory, members that are compressed or encrypted, stand there twice, or lie outside.
  /// Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
  ZipMembers(std::span<const std::byte> file, const std::string& where);

  const ZipMember* find(std::string_view name) const;  // nullptr when absent
  /// The folder of the first member: "archive" of "archive/data.pkl"; "" when it stands in none.
  std::string_view first_folder() const { return first_folder_; }

 private:
  std::map<std::string_view, ZipMember>
      members_;  // names are bytes of the file; no hash table, whose names could collide
  std::string_view first_folder_;
};

}  // namespace lockstep
