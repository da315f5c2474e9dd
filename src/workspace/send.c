/*
 * Files on their way into the place: each is read once, hashed while it is sent, and looked at
 * before and after. One that changed meanwhile is sent again.
 */
#include <errno.h>
#include <string.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "workspace/stage_internal.h"

/* One record, which goes into one frame. */
#define CHUNK ((size_t)262144)
#define TRIES 3
/* From here on a thread pays. */
#define LONG_FILE ((uint64_t)4 << 20)

/* 1: the file has less than it said. */
static int send_bytes(struct stage *s, struct tree_writer *put, int fd, struct tree_entry *entry,
		      struct error *err)
{
	_cleanup_side_hash_ struct side_hash *aside =
		entry->size >= LONG_FILE ? side_hash_start() : NULL;
	uint8_t *chunk;
	struct sha256 sum;

	/* Two in turns, where one is hashed while the other is filled. */
	if (!s->chunks)
		s->chunks = xmalloc_pages(2 * CHUNK);
	chunk = s->chunks;
	sha256_init(&sum);
	for (uint64_t at = 0; at < entry->size;) {
		ssize_t n = pread(fd, chunk, MIN_OF(CHUNK, entry->size - at), (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read %s", entry->path);
		if (n == 0)
			return 1;
		if (aside)
			side_hash_give(aside, chunk, (size_t)n);
		else
			sha256_update(&sum, chunk, (size_t)n);
		if (tree_writer_data(put, chunk, (size_t)n, err) < 0)
			return -1;
		if (aside)
			chunk = chunk == s->chunks ? s->chunks + CHUNK : s->chunks;
		at += (uint64_t)n;
		s->now.bytes += (uint64_t)n;
		if (stage_tick(s, err) < 0)
			return -1;
	}
	if (aside)
		side_hash_finish(steal(aside), entry->sha256);
	else
		sha256_final(&sum, entry->sha256);
	entry->flags |= TREE_HAS_HASH;
	return 0;
}

/* 1: it changed while it was sent; `last` lets that pass. */
static int send_once(struct stage *s, struct tree_writer *put, struct send_queue *outbox, int fd,
		     bool last, struct tree_entry *entry, struct error *err)
{
	struct tree_entry after = *entry;
	struct stat st;

	send_queue_open(outbox, entry->path);
	if (tree_writer_file(put, entry, err) < 0)
		return -1;

	int rc = send_bytes(s, put, fd, entry, err);

	if (rc > 0) {
		send_queue_forget(outbox);
		return tree_writer_skip(put, err) < 0 ? -1 : 1;
	}
	if (rc < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "look at %s", entry->path);
	tree_entry_from_stat(&st, &after);

	bool changed = !tree_entry_same_state(&after, &(struct tree_entry){
							      .type = entry->type,
							      .mode = entry->mode,
							      .size = entry->size,
							      .mtime_ns = entry->mtime_ns,
							      .ctime_ns = entry->ctime_ns,
							      .dev = entry->dev,
							      .ino = entry->ino,
						      });

	if (send_queue_close(outbox, entry, changed && !last, err) < 0)
		return -1;
	return changed;
}

int send_file(struct stage *s, struct tree_writer *put, struct send_queue *outbox,
	      file_open_fn *open, void *arg, struct tree_entry *entry, enum sent *sent,
	      struct error *err)
{
	uint64_t bytes_before = s->now.bytes;

	for (int i = 0; i < TRIES; i++) {
		_cleanup_close_ int fd = open(arg, entry);
		struct stat st;

		s->now.bytes = bytes_before;
		*sent = SENT_UNREADABLE;
		if (fd < 0 && (errno == EACCES || errno == EPERM))
			return 0;
		*sent = SENT_GONE;
		if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP ||
			       errno == ENXIO || errno == ESTALE))
			return 0;
		if (fd < 0 || fstat(fd, &st) < 0)
			return error_errno(err, errno, "open %s", entry->path);
		if (!S_ISREG(st.st_mode))
			return 0;
		tree_entry_from_stat(&st, entry);
		*sent = SENT_WHOLE;

		int rc = send_once(s, put, outbox, fd, i == TRIES - 1, entry, err);

		if (rc <= 0)
			return rc;
		*sent = SENT_CHANGING;
	}
	/* Its last version is there, unless even that was shorter than it said. */
	if (!(entry->flags & TREE_HAS_HASH))
		*sent = SENT_GONE;
	entry->flags |= TREE_RACY;
	return 0;
}

int send_content(struct stage *s, struct tree_writer *put, struct send_queue *outbox,
		 const void *content, const struct tree_entry *entry, struct error *err)
{
	send_queue_open(outbox, entry->path);
	if (tree_writer_file(put, entry, err) < 0 ||
	    tree_writer_data(put, content, entry->size, err) < 0)
		return -1;
	s->now.bytes += entry->size;
	return send_queue_close(outbox, entry, false, err);
}
