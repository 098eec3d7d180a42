// Other names for a file's columns, roles and keys of turns: what --columns and entries of dataset_info.json say. A row is put
// into the usual names before it is read.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

using NamedColumns = std::vector<std::pair<std::string, std::string>>;  // the file's name, the usual one

struct RowMapping {
  NamedColumns columns;
  std::string role_key, content_key;         // of turns; empty: the usual
  std::map<std::string, std::string> roles;  // the file's role, the usual one
  std::set<std::string> unread;              // the file's columns that are left out

  bool empty() const {
    return columns.empty() && role_key.empty() && content_key.empty() && roles.empty() && unread.empty();
  }
  std::string as_text() const;  // two that are equal read rows alike
  /// Adds those of `columns` that a row of the file has, by the name that they have here.
  void add_found(const Json& row, std::set<std::string>& found) const;
  /// Adds those that a row has and that are left out.
  void add_left_out(const Json& row, std::set<std::string>& left_out) const;
};

/// Columns of words and media whose usual names are written in other letters, as ms-swift reads them ("Images", "images"); none where
/// the row has a column of that kind. Of several of a kind the one whose name comes first where letters are small.
NamedColumns recased_columns(const Json& row);

/// Where nothing is mapped those become the usual ones. Throws UserError(kData) naming `where` for a column whose usual name the row has too, and for turns that have no such keys.
Json mapped_row(Json row, const RowMapping& mapping, const std::string& where);

}  // namespace lockstep
