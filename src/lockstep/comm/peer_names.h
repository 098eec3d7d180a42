// Keeps the name server out of a meeting.
#pragma once

namespace lockstep {

/// c10d asks the system for the name of every address that it meets, at each connection and each wait that ends late, only
/// to print it. Where the name server does not answer, each of these stands still for 5 s or more. A program that calls this
/// anywhere has a `getnameinfo` of its own, found before the C library's, that answers with the number.
void print_peers_by_number();

}  // namespace lockstep
