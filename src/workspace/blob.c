/*
 * Contents of changed files, by their hash. A blob is written under a temporary name, and holes
 * stay holes. It is synced by blobs_sync, all together: syncing one by one takes longer than
 * everything else.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/text.h"
#include "workspace/results.h"

#define NAME_SIZE (2 * TREE_HASH_SIZE + 1)
#define TEMP_SIZE 32

struct blob_writer {
	int dir_fd, fd;
	char temp[TEMP_SIZE];
	struct sha256 hash;
	uint64_t size;
};

static int open_dir(int run_fd, bool make, struct error *err)
{
	if (make && mkdirat(run_fd, RESULTS_BLOBS, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make the directory of contents");

	int fd = openat(run_fd, RESULTS_BLOBS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 ? fd : error_errno(err, errno, "open the directory of contents");
}

int blob_create(int run_fd, struct blob_writer **w, struct error *err)
{
	uint8_t random[8];
	char hex[sizeof(random) * 2 + 1];
	int dir_fd = open_dir(run_fd, true, err);

	if (dir_fd < 0)
		return -1;

	struct blob_writer *b = xcalloc(1, sizeof(*b));

	random_bytes(random, sizeof(random));
	hex_encode(hex, random, sizeof(random));
	snprintf(b->temp, sizeof(b->temp), ".tmp-%s", hex);
	b->dir_fd = dir_fd;
	b->fd = openat(dir_fd, b->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (b->fd < 0) {
		error_errno(err, errno, "make a file for contents");
		close_fdp(&b->dir_fd);
		free(b);
		return -1;
	}
	sha256_init(&b->hash);
	*w = b;
	return 0;
}

int blob_append(struct blob_writer *w, const void *data, size_t len, struct error *err)
{
	if (fd_pwrite_all(w->fd, data, len, (off_t)w->size, err) < 0)
		return error_wrap(err, "keep the contents of a file");
	sha256_update(&w->hash, data, len);
	w->size += len;
	return 0;
}

int blob_hole(struct blob_writer *w, uint64_t len, struct error *err)
{
	static const uint8_t zeros[65536];

	if (len > INT64_MAX - w->size)
		return error_set(err, ERR_TOO_LARGE, "a file too large to keep");
	w->size += len;
	for (uint64_t left = len; left;) {
		size_t n = (size_t)MIN_OF(left, (uint64_t)sizeof(zeros));

		sha256_update(&w->hash, zeros, n);
		left -= n;
	}
	return 0;
}

static void writer_free(struct blob_writer *w)
{
	close_fdp(&w->fd);
	close_fdp(&w->dir_fd);
	free(w);
}

void blob_abandon(struct blob_writer *w)
{
	if (!w)
		return;
	unlinkat(w->dir_fd, w->temp, 0);
	writer_free(w);
}

int blob_commit(struct blob_writer *w, uint8_t sha256[TREE_HASH_SIZE], struct error *err)
{
	char name[NAME_SIZE];

	sha256_final(&w->hash, sha256);
	hex_encode(name, sha256, TREE_HASH_SIZE);
	/* A hole at the end is made by the size alone. */
	if (ftruncate(w->fd, (off_t)w->size) < 0 ||
	    renameat(w->dir_fd, w->temp, w->dir_fd, name) < 0) {
		error_errno(err, errno, "keep the contents of a file");
		blob_abandon(w);
		return -1;
	}
	/* The disk begins now, so that blobs_sync finds little to wait for. */
	sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	writer_free(w);
	return 0;
}

int blob_open(int run_fd, const uint8_t sha256[TREE_HASH_SIZE], struct error *err)
{
	char name[NAME_SIZE], path[sizeof(RESULTS_BLOBS) + 1 + NAME_SIZE];

	hex_encode(name, sha256, TREE_HASH_SIZE);
	snprintf(path, sizeof(path), "%s/%s", RESULTS_BLOBS, name);

	int fd = openat(run_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 ? fd : error_errno(err, errno, "open the contents %.12s", name);
}

int blobs_sync(int run_fd, struct error *err)
{
	_cleanup_close_ int fd = open_dir(run_fd, true, err);

	if (fd < 0)
		return -1;
	if (syncfs(fd) < 0)
		return error_errno(err, errno, "sync the contents of files");
	return 0;
}

int blobs_clear(int run_fd, struct error *err)
{
	if (dir_remove_tree(run_fd, RESULTS_BLOBS, err) < 0)
		return error_wrap(err, "clear the contents of an earlier try");
	return 0;
}
