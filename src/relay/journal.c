/*
 * Execs on disk: those that run for longer than a moment, and exits, each written before it is
 * reported, with what is left of their output: wire/place.h says how. Not synced: see spool.h. The
 * file holds what was not forgotten; when it has grown, a new one with only that takes its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/exec.h"
#include "wire/place.h"

#define JOURNAL_MAX (256u << 10)
#define JOURNAL_NEW RELAY_JOURNAL_FILE ".new"

static void append_ring(struct buf *out, const struct exec *exec)
{
	const struct ring *ring = &exec->ring;
	uint32_t count = ring_segment_count(ring);
	struct wire_exec_ring m = { .size = ring->size };
	_cleanup_free_ uint8_t *packed = xcalloc(count, RELAY_SEGMENT_SIZE);

	for (uint32_t i = 0; i < count; i++) {
		const struct segment *segment = ring_segment(ring, i);
		uint8_t *p = packed + (size_t)i * RELAY_SEGMENT_SIZE;

		put_le64(p, segment->offset);
		put_le64(p + 8, segment->channel_offset);
		put_le32(p + 16, segment->len);
		put_le32(p + 20, segment->channel);
	}
	memcpy(m.exec_id, exec->id, WIRE_ID_SIZE);
	m.segments = (struct wire_bytes){ packed, count * RELAY_SEGMENT_SIZE };
	wire_encode(out, 0, WIRE_EXEC_RING, &m, NULL);
}

static void append_output(struct buf *out, const struct exec *exec)
{
	const struct ring *ring = &exec->ring;
	uint8_t bytes[WIRE_OUTPUT_OVERHEAD + 4096];

	for (uint64_t offset = ring->begin; offset < ring->end;) {
		enum wire_channel channel = WIRE_STDOUT;
		uint64_t channel_offset = 0;
		ssize_t n = ring_read(ring, offset, bytes + WIRE_OUTPUT_OVERHEAD,
				      sizeof(bytes) - WIRE_OUTPUT_OVERHEAD, &channel,
				      &channel_offset, NULL);

		if (n <= 0)
			return;
		put_le64(bytes, offset);
		put_le64(bytes + 8, channel_offset);
		frame_append(out, WIRE_OUTPUT, (uint8_t)channel, 0, bytes,
			     (uint32_t)(WIRE_OUTPUT_OVERHEAD + (size_t)n));
		offset += (uint64_t)n;
	}
}

static void append_exec(struct buf *out, const struct exec *exec)
{
	struct wire_exec_state state;

	exec_describe(exec, &state);
	wire_encode(out, 0, WIRE_EXEC_STATE, &state, NULL);
	if (exec->phase != WIRE_EXEC_EXITED || exec->ring.begin == exec->ring.end)
		return;
	if (exec->ring.fd >= 0 && !exec->ring.memory)
		append_ring(out, exec);
	else
		append_output(out, exec);
}

static int create(const char *name, struct error *err)
{
	_cleanup_close_ int fd = openat(
		RELAY_FD_SPOOL, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	/* One that is empty is left alone: of a file that was cut off the last bytes go to the disk
	 * when it is closed, and whoever empties it next waits for them. */
	if (fd < 0 || fstat(fd, &st) < 0 || (st.st_size > 0 && ftruncate(fd, 0) < 0))
		return error_errno(err, errno, "opening the journal");
	return steal_fd(&fd);
}

static int rewrite(struct relay *relay, struct error *err)
{
	_cleanup_buf_ struct buf all = { 0 };
	_cleanup_close_ int fd = create(JOURNAL_NEW, err);

	for (const struct exec *e = relay->execs; e; e = e->next)
		if (e->phase == WIRE_EXEC_EXITED || e->note.len > 0)
			append_exec(&all, e);
	if (fd < 0 || (all.len > 0 && fd_write_all(fd, all.data, all.len, err) < 0))
		return -1;
	if (renameat(RELAY_FD_SPOOL, JOURNAL_NEW, RELAY_FD_SPOOL, RELAY_JOURNAL_FILE) < 0)
		return error_errno(err, errno, "naming the journal");
	close(relay->journal.fd);
	relay->journal.fd = steal_fd(&fd);
	relay->journal.size = relay->journal.kept = all.len;
	return 0;
}

int journal_open(struct relay *relay, struct error *err)
{
	relay->journal.fd = create(RELAY_JOURNAL_FILE, err);
	return relay->journal.fd < 0 ? -1 : 0;
}

int journal_record(struct relay *relay, const struct exec *exec, struct error *err)
{
	_cleanup_buf_ struct buf one = { 0 };

	/* Twice what was kept last time, or a full journal would be written anew for every exit. */
	if (relay->journal.size > JOURNAL_MAX && relay->journal.size > 2 * relay->journal.kept)
		return rewrite(relay, err);
	append_exec(&one, exec);
	if (fd_write_all(relay->journal.fd, one.data, one.len, err) < 0) {
		/* Half a record would hide all that follow it. */
		if (ftruncate(relay->journal.fd, (off_t)relay->journal.size) < 0)
			return error_errno(err, errno, "cutting the journal's torn end");
		return -1;
	}
	relay->journal.size += one.len;
	return 0;
}
