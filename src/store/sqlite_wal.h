/*
 * The WAL's file, grown ahead of what is written to it. A commit that appends to a file changes its
 * length and takes blocks, and an fsync then waits for the disk several times, for the data and for
 * the file system's own journal; into blocks that were written before it waits once.
 *
 * What is put there are zeros behind the end of the file. To SQLite a frame counts only if it names
 * a page, which zeros do not, and carries the salts of the WAL's header and the checksum of all
 * before it: zeros are where the WAL ends, whether SQLite, another program or a recovery after a
 * crash reads it, and however many of them were written by then.
 */
#pragma once

#include <stdint.h>
#include "store/sqlite_conn.h"

/* A frame of the WAL: its header and a page as SQLite makes them unless told otherwise. */
#define WAL_FRAME_BYTES (24 + 4096)

/*
 * Makes room for `more` frames behind the present end of the file unless it has `enough` of them
 * already, or the disk has little left. Nobody may write meanwhile: the caller has the connection,
 * and other programs are kept out here. Returns how many frames fit into the file afterwards; -1
 * when that could not be found out.
 *
 * *fd is what the caller has to sync and close, -1 when nothing was written: others may commit
 * during that.
 */
int64_t wal_grow(struct sqlite_conn *conn, int64_t enough, int64_t more, int *fd);
