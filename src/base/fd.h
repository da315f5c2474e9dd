/*
 * File descriptors and files. Every descriptor is close-on-exec; every write is whole or an error;
 * what is replaced is replaced atomically and durably.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/error.h"

static inline void close_fdp(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
#define _cleanup_close_ _cleanup_(close_fdp)
static inline int steal_fd(int *fd)
{
	int v = *fd;
	*fd = -1;
	return v;
}

/* Retries after EINTR and short writes; a descriptor that would block is an error (EAGAIN). */
int fd_write_all(int fd, const void *data, size_t len, struct error *err);
int fd_pwrite_all(int fd, const void *data, size_t len, off_t offset, struct error *err);
/* Appends up to the end; more than max is ERR_TOO_LARGE. On failure `out` is as it was. */
int fd_read_all(int fd, struct buf *out, size_t max, struct error *err);
int fd_set_nonblock(int fd, bool on, struct error *err);
/*
 * sendmsg and recvmsg of a unix socket with descriptors beside the bytes, at most FDS_PASSED_MAX.
 * What was received is the caller's, close-on-exec; of those for which there is no room nothing is
 * kept. *count: in the room in fds, out how many came.
 */
#define FDS_PASSED_MAX 64
ssize_t fd_send_with(int socket, const void *data, size_t len, const int *fds, size_t count,
		     int flags);
ssize_t fd_recv_with(int socket, void *data, size_t len, int *fds, size_t *count, int flags);
int fd_sync(int fd, struct error *err);

/*
 * Paths are relative to dirfd (AT_FDCWD allowed). An absent file is ERR_IO with errnum ENOENT.
 * file_read takes regular files only.
 */
int file_read(int dirfd, const char *path, struct buf *out, size_t max, struct error *err);
/*
 * tmp + fsync + rename + fsync of the directory: after a crash the old or the new content is there,
 * and perhaps a file ".tmp-<hex>" beside it.
 */
int file_replace(int dirfd, const char *name, const void *data, size_t len, mode_t mode,
		 struct error *err);
/*
 * The same without the last fsync: after a power cut the old or the new content is there, whole,
 * and surely the new one once something else has synced the directory.
 */
int file_replace_soon(int dirfd, const char *name, const void *data, size_t len, mode_t mode,
		      struct error *err);
/* Removes those of a program that was killed; nobody may be writing here meanwhile. */
void dir_sweep_temporary(int dirfd);
int dir_open(int dirfd, const char *path, int *fd, struct error *err);
/* mkdir -p; everything that has to be made gets `mode`, less the umask. */
int dir_make(int dirfd, const char *path, mode_t mode, struct error *err);
int dir_sync(int dirfd, struct error *err);
/*
 * rm -rf of one entry without following links or entering another mount; absence is success. Stops
 * at the first thing that cannot be removed.
 */
int dir_remove_tree(int dirfd, const char *name, struct error *err);
int64_t dir_free_bytes(int dirfd); /* -1 when unknown */

/* An eventfd used as a latch that many threads may poll. */
int latch_new(struct error *err);
void latch_set(int fd);
void latch_clear(int fd);
bool latch_is_set(int fd);
