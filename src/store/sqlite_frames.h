/*
 * Frames of the WAL, written together. SQLite writes each page of a transaction with two system
 * calls, one for the frame's header and one for the page; each costs more than what it copies. This
 * is SQLite's own file system with one difference: what a transaction appends to the WAL is held
 * until its last frame, which says in its header that it is the last, and then written at once.
 *
 * Nobody can miss what is held. SQLite tells other connections of a transaction's frames after it
 * wrote the last of them; before that they are read by the connection that writes, and whatever it
 * does with the file but append to it writes first what is held. An error of that write is one of
 * the call that made it necessary, so that the transaction fails with it.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>

/* Its name, for sqlite3_open_v2; NULL, which is SQLite's own, where it cannot be had. */
const char *sqlite_frames_vfs(void);

/*
 * Whether a commit waits until it is on the disk, which it does unless told otherwise. It is what
 * PRAGMA synchronous says with FULL and NORMAL, without the work of understanding a statement: of
 * all syncs only the one behind the last frame is left out.
 */
void sqlite_frames_wait(sqlite3 *db, bool for_disk);
