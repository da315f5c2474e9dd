/*
 * Standard input of an exec: sent against the relay's credit, kept until the relay must have it.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include "place/shell/shell_internal.h"

/* The relay has everything older than its whole credit, or it could not have given any. */
#define KEPT ((uint64_t)WIRE_STDIN_CREDIT)
#define TRIM_AT ((uint64_t)256 << 10)
/* What places_write_stdin may leave here unsent. */
#define UNSENT_MAX ((size_t)64 << 10)
#define ATTACH_LOOK_MS 10

static uint64_t input_end(const struct exec_input *in)
{
	return in->base + in->bytes.len;
}

static void trim(struct exec_input *in)
{
	uint64_t old = in->sent > in->base + KEPT ? in->sent - in->base - KEPT : 0;

	if (old < TRIM_AT)
		return;
	wipe(in->bytes.data, (size_t)old);
	buf_consume(&in->bytes, (size_t)old);
	in->base += old;
}

void exec_input_push(struct exec *exec)
{
	struct exec_input *in = &exec->input;

	if (exec->stream && stream_is_closed(exec->stream))
		in->closed = true;
	while (exec->stream && !in->closed) {
		size_t left = (size_t)(input_end(in) - in->sent);
		bool end = in->end && !in->end_sent;
		ssize_t n;

		if (left == 0 && !end)
			break;
		n = stream_data(exec->stream,
				left > 0 ? in->bytes.data + (in->sent - in->base) : "", left, end,
				NULL);
		if (n < 0 || (n == 0 && left > 0))
			break;
		in->sent += (uint64_t)n;
		in->end_sent |= end && (size_t)n == left;
	}
	trim(in);
}

int exec_input_resume(struct exec *exec, const struct wire_exec_started *started)
{
	struct exec_input *in = &exec->input;

	/* An adopted exec without its input goes on where the relay is. */
	if (in->bytes.len == 0 && in->sent == 0)
		in->base = in->sent = started->stdin_offset;
	if (started->stdin_offset < in->base || started->stdin_offset > input_end(in))
		return -1;
	in->sent = started->stdin_offset;
	/* A terminal would take a second end for a second key press. */
	if (!exec->terminal)
		in->end_sent = false;
	stream_grant(exec->stream, started->stdin_credit);
	return 0;
}

/* Takes what there is room for. True when everything was taken. */
static bool feed_locked(struct exec *exec, const char **data, size_t *len, bool end)
{
	struct exec_input *in = &exec->input;
	size_t unsent, n;

	exec_input_push(exec);
	unsent = (size_t)(input_end(in) - in->sent);
	n = unsent < UNSENT_MAX ? MIN_OF(*len, UNSENT_MAX - unsent) : 0;
	if (n > 0)
		buf_append(&in->bytes, *data, n);
	*data += n;
	*len -= n;
	if (*len == 0 && end)
		in->end = true;
	exec_input_push(exec);
	return *len == 0;
}

static int feed(struct exec *exec, const char *data, size_t len, bool end, int64_t deadline,
		size_t *taken, struct error *err)
{
	const char *begin = data;

	for (;;) {
		struct stream *stream = NULL;
		bool done = false, closed;

		pthread_mutex_lock(&exec->lock);
		closed = exec->input.closed || exec->input.end;
		if (!closed)
			done = feed_locked(exec, &data, &len, end);
		if (exec->stream)
			stream = stream_ref(exec->stream);
		pthread_mutex_unlock(&exec->lock);
		*taken = (size_t)(data - begin);
		if (!closed && !done) {
			/* Without a stream or after its end there is nothing to wait on but time.
			 */
			if (!stream || !stream_wait_credit(stream, deadline))
				poll(NULL, 0, ATTACH_LOOK_MS);
		}
		if (stream)
			stream_unref(stream);
		if (closed && len == 0)
			return 0;
		if (closed)
			return error_set(err, ERR_CONFLICT,
					 "the command does not read its standard input");
		if (done)
			return 0;
		if (boottime_ms() >= deadline)
			return error_set(err, ERR_TIMEOUT, "the command does not read its input");
	}
}

int places_write_stdin(struct places *places, const char *exec_id, const void *data, size_t len,
		       bool end, int64_t wait_ms, size_t *taken, struct error *err)
{
	struct exec *exec;
	int rc;

	*taken = 0;
	pthread_mutex_lock(&places->lock);
	exec = exec_find_locked(places, exec_id);
	if (exec)
		atomic_fetch_add(&exec->refs, 1);
	pthread_mutex_unlock(&places->lock);
	if (!exec)
		return error_set(err, ERR_NOT_FOUND, "no such exec is running");
	if (place_is_shell(exec->place))
		rc = shell_refuse(err, "standard input has to be given whole, with the command");
	else
		rc = feed(exec, data, len, end, boottime_ms() + MAX_OF(wait_ms, 0), taken, err);
	exec_unref(exec);
	return rc;
}
