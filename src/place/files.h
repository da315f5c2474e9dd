/*
 * Files of a place, through its relay: every path is resolved beneath the place's root by the relay
 * and cannot leave it. Paths are relative to the root (a leading slash is the root); ".." that
 * would leave it, magic links, and links that point outside are refused there (ERR_BAD_PATH).
 *
 * The place must be open for the generation. All calls block until their answer or the deadline of
 * 60 s.
 */
#pragma once

#include "place/exec.h"

struct place_ref {
	struct places *places;
	const char *place_id;
	int64_t generation;
};

struct file_info {
	char *path;       /* as asked, or the entry's name in a list */
	const char *type; /* "file", "directory", "symlink", "fifo", ... */
	uint32_t mode;
	int64_t size, mtime_ms, uid, gid;
	char *target; /* of a symlink; NULL otherwise */
};
void file_info_clear(struct file_info *info);
json_t *file_info_json(const struct file_info *info);

int place_file_stat(const struct place_ref *place, const char *path, struct file_info *out,
		    struct error *err);
/* {entries:[...], nextCursor}: sorted by nothing, at most limit. */
json_t *place_file_list(const struct place_ref *place, const char *path, const char *cursor,
			int64_t limit, struct error *err);

/* Reading and writing stream with bounded memory. */
struct file_reader;
int place_file_open(const struct place_ref *place, const char *path, int64_t offset, int64_t length,
		    struct file_info *info, struct file_reader **reader,
		    struct error *err); /* length < 0: to the end */
/* Bytes read, 0 at the end, -1. Blocks until there is something. */
ssize_t file_reader_next(struct file_reader *reader, void *buf, size_t max, struct error *err);
void file_reader_close(struct file_reader *reader);

/* Nothing is visible under the path before file_writer_commit; a writer closed without it leaves
 * nothing. */
struct file_writer;
struct file_write_options {
	uint32_t mode;   /* 0: keep the old file's, or 0644 */
	bool no_clobber; /* an existing file is ERR_CONFLICT */
};
int place_file_create(const struct place_ref *place, const char *path,
		      const struct file_write_options *options, struct file_writer **writer,
		      struct error *err);
int file_writer_append(struct file_writer *writer, const void *data, size_t len, struct error *err);
int file_writer_commit(struct file_writer *writer, struct file_info *info,
		       struct error *err); /* frees it */
void file_writer_abandon(struct file_writer *writer);

int place_file_mkdir(const struct place_ref *place, const char *path, uint32_t mode, bool parents,
		     struct error *err);
int place_file_rename(const struct place_ref *place, const char *from, const char *to,
		      bool no_clobber, struct error *err);
int place_file_remove(const struct place_ref *place, const char *path, bool recursive,
		      struct error *err);
int place_file_chmod(const struct place_ref *place, const char *path, uint32_t mode,
		     struct error *err);
