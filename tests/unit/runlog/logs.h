/* One store with one log in a test's own directory, and what is asked of it. */
#pragma once

#include "../base/tempdir.h"
#include "base/buf.h"
#include "base/fd.h"
#include "runlog/runlog.h"

#define NAME "0f8fad5b-d9cb-469f-a165-70867728950e"
#define DATA_FILE "0f/" NAME ".data"
#define INDEX_FILE "0f/" NAME ".index"
#ifndef RECORD_SIZE
#define RECORD_SIZE 32
#endif

static inline struct runlog_store *store_at(void **state, int64_t max_bytes)
{
	struct tempdir *t = *state;
	struct runlog_store *store;

	assert_int_equal(runlog_store_open(t->fd, max_bytes, &store, NULL), 0);
	return store;
}

static inline struct runlog *log_in(struct runlog_store *store)
{
	struct runlog *log;

	assert_int_equal(runlog_open(store, NAME, &log, NULL), 0);
	return log;
}

static inline void append(struct runlog *log, enum runlog_stream stream, const char *text)
{
	assert_int_equal(runlog_append(log, stream, text, strlen(text), 1000, NULL), 0);
}

static inline struct runlog_reader *reader_at(struct runlog_store *store, int64_t since)
{
	struct runlog_reader *reader;

	assert_int_equal(runlog_reader_open(store, NAME, since, &reader, NULL), 0);
	return reader;
}

static inline void expect_chunk(struct runlog_reader *reader, size_t max, enum runlog_stream stream,
				int64_t offset, int64_t stream_offset, const char *text)
{
	struct runlog_chunk chunk;

	assert_int_equal(runlog_read(reader, max, &chunk, NULL), 1);
	assert_int_equal(chunk.stream, stream);
	assert_int_equal(chunk.offset, offset);
	assert_int_equal(chunk.stream_offset, stream_offset);
	assert_int_equal(chunk.len, strlen(text));
	assert_memory_equal(chunk.data, text, chunk.len);
	assert_false(chunk.truncated);
}

static inline void expect_nothing(struct runlog_reader *reader)
{
	struct runlog_chunk chunk;

	assert_int_equal(runlog_read(reader, 100, &chunk, NULL), 0);
}

static inline void expect_truncated(struct runlog_reader *reader, int64_t offset)
{
	struct runlog_chunk chunk;

	assert_int_equal(runlog_read(reader, 100, &chunk, NULL), 1);
	assert_true(chunk.truncated);
	assert_int_equal(chunk.len, 0);
	assert_int_equal(chunk.offset, offset);
	expect_nothing(reader);
}

/* Everything from `since`, both streams together. */
static inline void read_text(struct runlog_store *store, int64_t since, struct buf *out)
{
	struct runlog_reader *reader = reader_at(store, since);
	struct runlog_chunk chunk;
	int rc;

	while ((rc = runlog_read(reader, 64, &chunk, NULL)) == 1)
		buf_append(out, chunk.data, chunk.len);
	assert_int_equal(rc, 0);
	runlog_reader_close(reader);
}

static inline void expect_text(struct runlog_store *store, int64_t since, const char *text)
{
	_cleanup_buf_ struct buf got = { 0 };

	read_text(store, since, &got);
	assert_string_equal(buf_str(&got), text);
}

static inline off_t file_size(void **state, const char *path)
{
	struct tempdir *t = *state;
	struct stat st;

	assert_int_equal(fstatat(t->fd, path, &st, 0), 0);
	return st.st_size;
}

static inline void file_cut(void **state, const char *path, off_t size)
{
	struct tempdir *t = *state;
	int fd = openat(t->fd, path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

static inline void file_add(void **state, const char *path, const void *data, size_t len)
{
	struct tempdir *t = *state;
	int fd = openat(t->fd, path, O_WRONLY | O_APPEND | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	close(fd);
}
