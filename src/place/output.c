/*
 * What comes on an exec's stream: output into its log, acknowledged afterwards, until the exit.
 */
#include <assert.h>
#include <poll.h>
#include <string.h>
#include "base/log.h"
#include "link/fault_points.h"
#include "place/places.h"

#define PORTION (EXEC_WINDOW / 8)
/* Output that comes in drops is acknowledged at least this often. */
#define ACK_EVERY_MS 1000
#define FULL_DISK_LOOK_MS 200

bool exec_is_detached(struct exec *exec)
{
	return atomic_load(&exec->places->detached);
}

static bool is_unwanted(struct exec *exec)
{
	pthread_mutex_lock(&exec->lock);

	bool unwanted = exec->kill_reason != NOT_STOPPED;

	pthread_mutex_unlock(&exec->lock);
	return unwanted || place_stopped(exec->place) != NOT_STOPPED;
}

/*
 * A full disk makes the command wait, as a full pipe would. 0: time to try again; 1: somebody wants
 * its end more than its output; -1: the server is going.
 */
static int wait_for_room(struct exec *exec, const struct error *why, bool *told, struct error *err)
{
	if (exec_is_detached(exec))
		return error_set(err, ERR_UNAVAILABLE, "the server is stopping");
	if (is_unwanted(exec))
		return 1;
	if (!*told)
		log_error("exec %s: its output waits: %s", exec->id, why->message);
	*told = true;
	poll(NULL, 0, FULL_DISK_LOOK_MS);
	return 0;
}

static int append(struct exec *exec, enum wire_channel channel, const void *data, size_t len,
		  struct error *err)
{
	static const enum runlog_stream streams[] = {
		[WIRE_STDOUT] = RUNLOG_STDOUT,
		[WIRE_STDERR] = RUNLOG_STDERR,
		[WIRE_PTY] = RUNLOG_PTY,
	};
	_cleanup_error_ struct error why = { 0 };
	bool told = false;

	while (runlog_append(exec->log, streams[channel], data, len, clock_now(exec->places->clock),
			     &why) < 0) {
		int r = wait_for_room(exec, &why, &told, err);

		if (r != 0)
			return r < 0 ? -1 : 0;
	}
	return 0;
}

static int append_masked(void *arg, unsigned channel, const void *data, size_t len,
			 struct error *err)
{
	return append(arg, (enum wire_channel)channel, data, len, err);
}

int exec_store(struct exec *exec, enum wire_channel channel, const void *data, size_t len,
	       struct error *err)
{
	static_assert(MASK_CHANNELS == (int)WIRE_CHANNELS, "every channel is masked");
	if (!exec->flow)
		return append(exec, channel, data, len, err);
	return mask_flow_take(exec->flow, channel, data, len, boottime_ms(), append_masked, exec,
			      err);
}

int exec_store_held(struct exec *exec, struct error *err)
{
	return exec->flow ? mask_flow_flush(exec->flow, append_masked, exec, err) : 0;
}

/* What only memory has the relay must keep. False when that stays so. */
static bool settle(struct exec *exec)
{
	_cleanup_error_ struct error why = { 0 };
	bool told = false;

	while (runlog_make(exec->log, &why) < 0)
		if (wait_for_room(exec, &why, &told, NULL) != 0)
			return false;
	return true;
}

static void acknowledge(struct exec *exec)
{
	_cleanup_error_ struct error err = { 0 };
	/* What the mask holds back, or would need again, only the relay has. */
	uint64_t stored = exec->flow ? mask_flow_acked(exec->flow) : exec->taken;

	if (!settle(exec))
		return;
	/* Whatever kept it from being said, a new attachment says it all again, and gives credit.
	 */
	if (SAY_GUARDED("channel.ack", stream_acknowledge(exec->stream, stored, exec->owed, &err),
			&err) < 0) {
		log_debug("exec %s: %s", exec->id, err.message);
		link_close(stream_link(exec->stream));
		return;
	}
	exec->acked_ms = boottime_ms();
	exec->owed = 0;
}

static int take_output(struct exec *exec, const struct item *item, struct error *err)
{
	struct link *link = stream_link(exec->stream);
	const uint8_t *bytes = item->data + WIRE_OUTPUT_OVERHEAD;
	uint32_t len = item->len - WIRE_OUTPUT_OVERHEAD;

	if (item->flags >= WIRE_CHANNELS)
		return link_violated(link, err, "output of channel %u", item->flags);
	if (get_le64(item->data) != exec->taken)
		return link_violated(link, err, "output at offset %llu, not %llu",
				     (unsigned long long)get_le64(item->data),
				     (unsigned long long)exec->taken);
	if (exec_store(exec, item->flags, bytes, len, err) < 0)
		return -1;
	exec->taken += len;
	exec->channel_end[item->flags] = get_le64(item->data + 8) + len;
	exec->owed += len;
	if (exec->owed >= PORTION || boottime_ms() - exec->acked_ms >= ACK_EVERY_MS)
		acknowledge(exec);
	return 0;
}

int exec_store_hole(struct exec *exec, uint64_t len, struct error *err)
{
	_cleanup_free_ char *note =
		xasprintf("\n[%llu bytes of output were lost]\n", (unsigned long long)len);
	_cleanup_buf_ struct buf hole = { 0 };
	uint64_t known = MIN_OF(len, exec->known - MIN_OF(exec->known, exec->taken));

	if (exec_store_held(exec, err) < 0)
		return -1;
	if (exec->flow)
		mask_flow_skip(exec->flow, len);
	exec->taken += known;
	len -= known;
	buf_append(&hole, note, (size_t)MIN_OF((uint64_t)strlen(note), len));
	while (len > 0) {
		size_t n = (size_t)MIN_OF(len, (uint64_t)PORTION);

		if (hole.len < n) {
			size_t old = hole.len;

			buf_reserve(&hole, n - old);
			memset(hole.data + old, 0, n - old);
			hole.len = n;
		}
		if (append(exec, exec->terminal ? WIRE_PTY : WIRE_STDOUT, hole.data, n, err) < 0)
			return -1;
		len -= n;
		exec->taken += n;
		buf_reset(&hole);
	}
	return 0;
}

static int take_truncated(struct exec *exec, const struct wire_exec_truncated *m, struct error *err)
{
	uint64_t len = m->to_offset - m->from_offset;

	if (m->from_offset != exec->taken || m->to_offset <= m->from_offset || len > EXEC_LOST_MAX)
		return link_violated(stream_link(exec->stream), err, "a hole that cannot be");
	return exec_store_hole(exec, len, err);
}

static int take_exit(struct exec *exec, const struct wire_exec_exit *m, struct error *err)
{
	if (m->end_offset != exec->taken)
		return link_violated(
			stream_link(exec->stream), err, "an exit at offset %llu, not %llu",
			(unsigned long long)m->end_offset, (unsigned long long)exec->taken);
	exec->result = (struct exec_result){
		.exit_code = m->signal ? -1 : (int)m->exit_code,
		.reason = reason_from_wire(m->reason),
		.duration_ms = (int64_t)MIN_OF(m->wall_us / 1000, (uint64_t)INT64_MAX),
		.stdout_bytes = (int64_t)MIN_OF(m->stdout_offset, (uint64_t)INT64_MAX),
		.stderr_bytes = (int64_t)MIN_OF(m->stderr_offset, (uint64_t)INT64_MAX),
	};
	signal_name((int)m->signal, exec->result.signal);
	return 1;
}

/* 1: that was the exit. -1: the link is to blame and down, or the server is going. */
static int take_item(struct exec *exec, const struct item *item, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct link *link = stream_link(exec->stream);

	if (item->type == WIRE_OUTPUT)
		return take_output(exec, item, err);
	if (item_decode(link, item, &m, err) < 0)
		return -1;
	switch (m.type) {
	case WIRE_EXEC_EXIT:
		return take_exit(exec, &m.exec_exit, err);
	case WIRE_EXEC_TRUNCATED:
		return take_truncated(exec, &m.exec_truncated, err);
	default:
		return link_violated(link, err, "%s on an exec's stream", wire_type_name(m.type));
	}
}

int exec_take(struct exec *exec, struct item *items, struct error *err)
{
	int rc = 0;

	for (const struct item *i = items; i && rc == 0; i = i->next)
		rc = take_item(exec, i, err);
	items_free(&items);
	/* A relay without room, or with a full disk, goes on when it knows what we have. */
	if (rc == 0 && exec->owed > 0 && stream_is_stalled(exec->stream))
		acknowledge(exec);
	return rc;
}
