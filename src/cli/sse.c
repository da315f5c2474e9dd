#include "cli/sse.h"

#include <poll.h>
#include <string.h>

#include "base/fd.h"
#include "base/text.h"

#define PENDING_MAX ((size_t)4 << 20)
#define BACK_SECONDS 60
#define RETRY_MS 500

struct lines {
	struct sse *sse;
	struct buf pending; /* the line that has not ended yet */
	struct buf data;    /* of the event that has not ended yet */
	char type[64];
	bool stopped;
};

static bool end_of_event(struct lines *l)
{
	bool go_on = true;

	if (l->data.len)
		go_on = l->sse->on_event(l->sse->arg, l->type[0] ? l->type : "message",
					 buf_str(&l->data), l->data.len);
	buf_reset(&l->data);
	l->type[0] = '\0';
	return go_on;
}

static const char *value_of(const char *line, const char *field)
{
	size_t len = strlen(field);

	if (strncmp(line, field, len) != 0 || line[len] != ':')
		return NULL;
	return line + len + (line[len + 1] == ' ' ? 2 : 1);
}

static bool take_line(struct lines *l, const char *line)
{
	const char *value;

	if (!line[0])
		return end_of_event(l);
	if ((value = value_of(line, "id")))
		parse_i64(value, 0, INT64_MAX, &l->sse->last_id);
	else if ((value = value_of(line, "event")))
		snprintf(l->type, sizeof(l->type), "%s", value);
	else if ((value = value_of(line, "data")))
		buf_puts(&l->data, value);
	return true;
}

static bool take_data(void *arg, const char *data, size_t len)
{
	struct lines *l = arg;
	size_t used = 0;
	char *newline;

	if (l->pending.len + len > PENDING_MAX || l->data.len > PENDING_MAX)
		return false;
	buf_append(&l->pending, data, len);
	while ((newline = memchr(l->pending.data + used, '\n', l->pending.len - used))) {
		*newline = '\0';
		if (!take_line(l, l->pending.data + used)) {
			l->stopped = true;
			return false;
		}
		used = (size_t)(newline - l->pending.data) + 1;
	}
	buf_consume(&l->pending, used);
	return true;
}

static bool take_wake(void *arg)
{
	struct lines *l = arg;

	l->stopped = !l->sse->on_wake(l->sse->arg);
	return !l->stopped;
}

static int stream_once(struct lines *l, struct error *err)
{
	struct sse *sse = l->sse;
	_cleanup_buf_ struct buf path = { 0 };
	struct api_stream stream = { .method = "GET",
				     .accept = "text/event-stream",
				     .on_data = take_data,
				     .wake_fd = sse->wake_fd,
				     .on_wake = take_wake,
				     .arg = l };

	buf_printf(&path, "/api/companies/%s/events?follow=%d", sse->company_id, sse->follow);
	if (sse->types) {
		_cleanup_free_ char *types = api_escape(sse->api, sse->types);

		buf_printf(&path, "&types=%s", types);
	}
	if (sse->last_id >= 0)
		buf_printf(&path, "&lastEventId=%lld", (long long)sse->last_id);
	stream.path = buf_str(&path);
	buf_reset(&l->pending);
	buf_reset(&l->data);
	l->type[0] = '\0';
	return api_stream(sse->api, &stream, err);
}

/* 0 there is a server again, 1 ended by the caller, -1. */
static int reconnect(struct lines *l, struct error *err)
{
	struct sse *sse = l->sse;

	for (int tries = 0; tries < BACK_SECONDS * 1000 / RETRY_MS; tries++) {
		struct pollfd wake = { .fd = sse->wake_fd, .events = POLLIN };
		struct api *fresh = NULL;

		if (poll(&wake, 1, RETRY_MS) > 0 && !take_wake(l))
			return 1;
		error_clear(err);
		if (api_connect(sse->cli, false, &fresh, err) == 0) {
			api_close(sse->api);
			sse->api = fresh;
			return 0;
		}
		if (err->code != ERR_UNAVAILABLE)
			return -1;
	}
	return -1;
}

int sse_run(struct sse *sse, struct error *err)
{
	struct lines l = { .sse = sse };
	int r;

	for (;;) {
		r = stream_once(&l, err);
		if (l.stopped || (r == 0 && !sse->follow) ||
		    (r < 0 && err->code != ERR_UNAVAILABLE))
			break;
		r = reconnect(&l, err);
		if (r != 0)
			break;
	}
	buf_free(&l.pending);
	buf_free(&l.data);
	return l.stopped ? 0 : r;
}
